"""Dialects as their users meet them: every published manifest, and what each dialect does in each situation."""
