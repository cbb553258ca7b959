package cut

// Place returns the neighbours of the i-th node in the k-ary tree over n nodes
// that is laid out level by level: parent is -1 for node 0. Callers map nodes to
// ranks.
func Place(i, n, k int) (parent int, children []int) {
	parent = -1
	if i > 0 {
		parent = (i - 1) / k
	}
	for c := i*k + 1; c <= i*k+k && c < n; c++ {
		children = append(children, c)
	}
	return parent, children
}
