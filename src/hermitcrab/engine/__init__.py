"""The torch backend: sessions, prompt passes, decode rounds, drafts, draws."""
