"""One folder an operation: its public function, and its plain torch reference. No model or lane words."""
