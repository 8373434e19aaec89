"""Plan how many workers, partitions, gateways, brokers and how much Redis a forecast needs: `replyline plan`."""
