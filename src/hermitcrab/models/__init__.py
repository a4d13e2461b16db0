"""Model families: configuration, tensor names, forward."""
