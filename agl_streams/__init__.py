"""agl-streams: rollouts, attempts and spans as events in Redis streams."""
