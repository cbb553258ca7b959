package node

import "github.com/holdfast-hpc/holdfast/internal/config"

// KeyVar names the job for its daemon and clients.
const KeyVar = config.NodeKeyVar

// ReadyLine begins the line that a daemon with --stay writes when ranks can connect; the name of
// its host and its process id follow.
const ReadyLine = "holdfast node ready: "
