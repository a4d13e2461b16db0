"""One module a family of routes: parse, submit, render."""
