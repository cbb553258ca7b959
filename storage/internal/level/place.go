package level

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// place is what a level knows of itself wherever it is.
type place struct {
	name  string // of the level; empty: not known
	path  string
	of    *format.Marker // whose it is, where manifests of others are damage; nil: the caller looks
	owner int            // rank whose store the place belongs to; it clears away temporary files
	only  *Contents      // of epochs; nil: whatever their manifests say
	all   bool           // temporary files of all ranks are the owner's to clear away
}

// ForAll makes the owner clear away the temporary files of all ranks.
func (p *place) ForAll() { p.all = true }

// ownTemp reports whether a name is that of a file in the making that is the owner's to clear away.
func (p *place) ownTemp(name string) bool {
	rank, temp := TempRank(name)
	return temp && (p.all || rank == p.owner)
}

// IsStore reports whether a path is the URL of an object store.
func IsStore(path string) bool { return strings.HasPrefix(path, object.Scheme) }

// At is the level at a path that CheckPath has found right, which belongs to the store of a rank. Manifests that
// commit other contents than only says are damage there.
func At(fsys vfs.FS, name, path string, owner int, only *Contents) Level {
	return at(fsys, place{name: name, path: path, owner: owner, only: only})
}

func at(fsys vfs.FS, p place) Level {
	if IsStore(p.path) {
		return newBucket(fsys, p)
	}
	return newDir(fsys, p)
}

// Of is the level at such a path for a reader who knows whose it is, so that manifests of others are damage there;
// nil: it is not known.
func Of(fsys vfs.FS, path string, m *format.Marker) Level {
	p := place{path: path, of: m}
	if m != nil {
		p.name = m.Level
	}
	return at(fsys, p)
}

// Until makes the requests of a level end with ctx, but those that tidy up. It is called before the level is used. A
// file system can be told nothing of the kind.
func Until(ctx context.Context, l Level) Level {
	if b, ok := l.(*Bucket); ok {
		b.b.Until(ctx)
	}
	return l
}

// CheckPath says why a path can be no level, before anything is asked.
func CheckPath(path string) error {
	if IsStore(path) {
		_, err := object.New(path)
		return err
	}
	if scheme, url := schemeOf(path); url {
		return &DirError{Dir: path, Err: fmt.Errorf("this release does not know the scheme %s://", scheme),
			Remedy: "write s3://bucket/prefix for an object store, and a path without a scheme for a directory"}
	}
	return nil
}

// schemeOf is what stands before :// in a URL.
func schemeOf(path string) (scheme string, url bool) {
	scheme, _, url = strings.Cut(path, "://")
	return scheme, url && scheme != "" && !strings.ContainsAny(scheme, "/. ")
}

// Name is that of the level; empty if it is not known.
func (p *place) Name() string { return p.name }

// Path is where it is.
func (p *place) Path() string { return p.path }

// Traits are those of the level.
func (p *place) Traits() Traits { return TraitsOf(p.name) }

// manifest decodes that of an epoch, which must be one that belongs there.
func (p *place) manifest(file string, b []byte, e format.Epoch) (*format.Manifest, error) {
	m, err := format.DecodeManifest(file, b)
	if err != nil {
		return nil, err
	}
	return p.belongs(file, m, int64(len(b)), e)
}

// belongs makes sure that a manifest of n bytes is that of an epoch there.
func (p *place) belongs(file string, m *format.Manifest, n int64, e format.Epoch) (*format.Manifest, error) {
	bad := func(text string, args ...any) (*format.Manifest, error) {
		return nil, &format.CorruptError{File: file, Len: n, Reason: fmt.Sprintf(text, args...)}
	}
	switch {
	case m.Epoch != e:
		return bad("manifest of epoch %d", m.Epoch)
	case p.name != "" && m.Level != p.name:
		return bad("manifest of level %s in a directory of level %s", m.Level, p.name)
	case p.of != nil && m.Job != p.of.Job:
		return bad("manifest of job %q in a directory of job %q", m.Job, p.of.Job)
	case p.of != nil && !p.of.Run.Owns(m.Run), p.only != nil && !p.only.Run.IsZero() && !p.only.Run.Owns(m.Run):
		return nil, &OtherRunError{File: file, Manifest: m, Want: p.run()}
	case p.of != nil && m.Size != p.of.Size && !m.HasLayouts(): // with layouts a job may change its number of ranks
		return bad("manifest of %d ranks in a directory of %d", m.Size, p.of.Size)
	case p.only != nil && !p.only.Allows(e, m.ID):
		return nil, &OtherContentsError{File: file, Epoch: e}
	}
	return m, nil
}

// run is the one whose epochs count there.
func (p *place) run() format.Identity {
	if p.of != nil {
		return p.of.Run
	}
	return p.only.Run
}

// Contents has what epochs must contain, by Manifest.ID, and to which run they must belong. Directories that come back
// after a while may have other epochs under the same numbers.
type Contents struct {
	Run format.Identity // zero: epochs of any run count. Set before the first use

	ids sync.Map // of epochs: [16]byte
}

// Set says what an epoch contains.
func (c *Contents) Set(e format.Epoch, id [16]byte) { c.ids.Store(e, id) }

// Allows reports whether an epoch may contain what it does; is asked only where something was
// agreed on.
func (c *Contents) Allows(e format.Epoch, is func() [16]byte) bool {
	id, agreed := c.ids.Load(e)
	return !agreed || id == is()
}
