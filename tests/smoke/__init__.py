"""The compose file brought up where a Docker engine runs, used, damaged and taken down: `ops/docker/smoke`."""
