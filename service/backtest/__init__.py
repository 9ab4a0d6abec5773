"""Back-tests of the stop rule: over run bundles of this system, and over transcripts of other agents."""
