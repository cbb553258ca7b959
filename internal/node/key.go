package node

// KeyVar names the job for its daemon and clients.
const KeyVar = "HOLDFAST_NODE_KEY"

// ReadyLine begins the line that a daemon with --stay writes when ranks can connect; the name of
// its host and its process id follow.
const ReadyLine = "holdfast node ready: "
