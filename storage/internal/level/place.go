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

// place has the properties of a level that do not depend on its kind.
type place struct {
	name  string // of the level; empty: not known
	path  string
	of    *format.Marker // whose it is, where manifests of others are damage; nil: the caller looks
	owner int            // rank whose store the place belongs to; it clears away temporary files
	only  *Contents      // of epochs; nil: as their manifests say
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

// At returns the level at a path that CheckPath accepts, for the store of a rank. A manifest that commits other
// contents than only allows is damage.
func At(fsys vfs.FS, name, path string, owner int, only *Contents) Level {
	return at(fsys, place{name: name, path: path, owner: owner, only: only})
}

func at(fsys vfs.FS, p place) Level {
	if IsStore(p.path) {
		return newBucket(fsys, p)
	}
	return newDir(fsys, p)
}

// Of returns the level at such a path for a reader that knows its owner, so that manifests of others are damage; nil:
// unknown owner.
func Of(fsys vfs.FS, path string, m *format.Marker) Level {
	p := place{path: path, of: m}
	if m != nil {
		p.name = m.Level
	}
	return at(fsys, p)
}

// Until makes the requests of a level end with ctx, except for cleaning up. It is called before the level is used. A
// file system has no such requests.
func Until(ctx context.Context, l Level) Level {
	if b, ok := l.(*Bucket); ok {
		b.b.Until(ctx)
	}
	return l
}

// CheckPath returns an error if a path cannot be a level, before any access.
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

// schemeOf returns the part of a URL before ://.
func schemeOf(path string) (scheme string, url bool) {
	scheme, _, url = strings.Cut(path, "://")
	return scheme, url && scheme != "" && !strings.ContainsAny(scheme, "/. ")
}

// Name returns the name of the level; empty if it is not known.
func (p *place) Name() string { return p.name }

func (p *place) Path() string { return p.path }

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

// run returns the one whose epochs count there.
func (p *place) run() format.Identity {
	if p.of != nil {
		return p.of.Run
	}
	return p.only.Run
}

// Contents has the required contents of epochs, by Manifest.ID, and the run that they must belong to. Directories that
// come back may have other epochs under the same numbers.
type Contents struct {
	Run format.Identity // zero: epochs of any run count. Set before the first use

	ids sync.Map // of epochs: [16]byte
}

// Set sets the contents of an epoch.
func (c *Contents) Set(e format.Epoch, id [16]byte) { c.ids.Store(e, id) }

// Allows reports whether an epoch may have its contents; is is only called if contents were agreed on.
func (c *Contents) Allows(e format.Epoch, is func() [16]byte) bool {
	id, agreed := c.ids.Load(e)
	return !agreed || id == is()
}
