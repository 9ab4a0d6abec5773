"""The state machine: what state is, who moves it, how nodes connect."""
