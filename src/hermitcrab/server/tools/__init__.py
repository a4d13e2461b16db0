"""Tool calls: from the model's own spelling to the API's."""
