"""What may be published: draft, guards, snapshot, fallback, decision."""
