// Package connect brings the ranks of a job together: they meet in Open, learn who is on
// which node, share the job's key, and build the control plane. Until then it is MPI, or a
// program elsewhere, that carries what they say, and each step succeeds or fails on all
// ranks alike. Then they find out which directories they share: whether all nodes see the global one, and which rank
// writes the manifests of a directory that several have.
package connect
