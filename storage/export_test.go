package storage

import "context"

// PutFar is Put of a shard whose chunks, index and footer lie gap bytes, whole pages,
// further on than they would: what lies between is a hole in the file.
func PutFar(ctx context.Context, s *Store, e Epoch, level string, gap int64, secs []Section) (ShardInfo, error) {
	l, err := s.at(level)
	if err != nil {
		return ShardInfo{}, err
	}
	spec := s.spec(e, s.opt.Rank, secs)
	spec.Hole = gap
	info, idx, err := s.writeOut(ctx, l, spec, nil)
	l.remember(e, idx)
	return info, err
}

// Widen makes the part take so many more bytes, whole pages, of its pack: a hole
// before its footer.
func (p *Part) Widen(bytes int64) { p.spec.Room += bytes }
