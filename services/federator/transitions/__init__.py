"""What each event of a federation's log does to its state (`services.federator.state` has the table)."""
