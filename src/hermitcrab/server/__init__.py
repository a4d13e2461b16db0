"""The OpenAI API over HTTP: parse, submit, render. Knows the core by requests and events alone."""
