"""What may be published where no diagnosis was asked for: knowledge answers and system chat; pure functions only."""
