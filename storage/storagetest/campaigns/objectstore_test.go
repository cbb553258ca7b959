package campaigns

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

var (
	storeFaults = flag.Int("store-faults", 200, "how many faults of an object store TestStoreFaults plays")
	storeSeed   = flag.Uint64("store-seed", 1, "seed of the first job of TestStoreFaults")
	storeKills  = flag.Bool("store-kills", false, "TestKilledBetweenRequests kills at every request, not at every 13th")
)

const storeRanks = 2

// storeJob is a job whose only level is in an object store, and what is known of it.
type storeJob struct {
	*testing.T
	rnd    *rand.Rand
	server *fakes3.Server
	via    http.Handler // to the server
	proxy  *jobtest.StoreProxy
	url    string
	stores []*storage.Store
	runs   int
	next   storage.Epoch
	safe   map[storage.Epoch]bool // whose commit was reported to have worked
	broken string                 // what was found wrong
	bear   bool                   // with that; the caller looks
	free   bool                   // of a run lock
	log    []string
}

func newStoreJob(t *testing.T, seed uint64) *storeJob {
	s := &fakes3.Server{MinPart: 64 << 10, Page: 7}
	return &storeJob{T: t, rnd: rand.New(rand.NewPCG(seed, 3)), server: s, via: s, safe: map[storage.Epoch]bool{}}
}

func (j *storeJob) note(format string, args ...any) {
	j.log = append(j.log, fmt.Sprintf(format, args...))
}

func (j *storeJob) fail(format string, args ...any) {
	j.Helper()
	j.broken = fmt.Sprintf(format, args...)
	if j.bear {
		j.close()
		runtime.Goexit()
	}
	j.Fatalf("%s\nafter: %s\nthere are: %s", j.broken, strings.Join(j.log, "; "), strings.Join(j.server.Keys(), " "))
}

// open begins a run, which is killed at a request.
func (j *storeJob) open(killAt int64, done bool) error {
	j.runs++
	j.proxy = jobtest.NewStoreProxy(j.via, killAt, done)
	j.url = fakes3.Start(j.T, j.proxy)
	j.note("run %d", j.runs)
	j.stores = nil
	for r := range storeRanks {
		opt := storage.Options{Job: "soak", Rank: r, Size: storeRanks,
			Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: j.url}}}
		if !j.free {
			opt.Run = fmt.Sprint("run ", j.runs)
		}
		s, err := storage.Open(level.WithBeat(jobtest.WithPools(context.Background()), 2*time.Millisecond), opt)
		if err != nil {
			j.note("open: %v", err)
			j.close()
			return err
		}
		j.stores = append(j.stores, s)
	}
	for _, s := range j.stores {
		highest, err := s.Highest(context.Background())
		if err != nil {
			j.close()
			return err
		}
		j.next = max(highest+1, 1)
	}
	return nil
}

// close ends a run, in peace or not.
func (j *storeJob) close() {
	for _, s := range j.stores {
		if err := s.Close(); err != nil {
			j.note("close: %v", err)
		}
	}
	j.stores = nil
}

func (j *storeJob) kill() {
	j.proxy.Dead.Store(true)
	j.note("killed")
	j.close()
}

// sections of a rank: one that changes now and then, so that later epochs refer to earlier ones, and one that is always
// another.
func (j *storeJob) sections(rank int, e storage.Epoch) []storage.Section {
	slow, fast := make(storage.Bytes, 30_000), make(storage.Bytes, 100+j.rnd.IntN(5000))
	if j.rnd.IntN(6) == 0 {
		fast = make(storage.Bytes, 200_000)
	}
	rand.NewChaCha8([32]byte{byte(rank), byte(e / 3), 1}).Read(slow)
	rand.NewChaCha8([32]byte{byte(rank), byte(e), byte(j.rnd.Uint32()), byte(j.runs)}).Read(fast)
	return []storage.Section{{Name: "slow", Size: int64(len(slow)), Source: slow},
		{Name: "fast", Size: int64(len(fast)), Source: fast}}
}

// epoch takes one as the ranks of a job do, and reports whether it was committed.
func (j *storeJob) epoch() error {
	ctx := context.Background()
	e := j.next
	j.next++
	infos, errs := make([]storage.ShardInfo, storeRanks), make([]error, storeRanks)
	for r, s := range j.stores {
		infos[r], errs[r] = s.Put(ctx, e, storage.LevelGlobal, j.sections(r, e))
	}
	if err := errors.Join(errs...); err != nil {
		j.note("epoch %d put: %v", e, err)
		for _, s := range j.stores {
			_ = s.Discard(ctx, e, storage.LevelGlobal)
		}
		return err
	}
	if err := j.stores[0].Commit(ctx, e, storage.LevelGlobal, infos); err != nil {
		j.note("epoch %d commit: %v", e, err)
		for _, s := range j.stores {
			_ = s.Withdraw(e, storage.LevelGlobal)
		}
		return err
	}
	j.safe[e] = true
	j.note("epoch %d", e)
	have, err := j.stores[0].Present(ctx, storage.LevelGlobal)
	if err != nil {
		have = []storage.Epoch{e}
	}
	for _, s := range j.stores {
		_, _ = s.Committed(e, storage.LevelGlobal), s.Agree(storage.LevelGlobal, have)
	}
	for _, s := range j.stores {
		removed, err := s.Prune(ctx)
		j.note("removed %v, %v", removed, err)
	}
	return nil
}

// check looks at the store past all faults: each epoch that is committed there is whole and is what was put, and each
// whose commit was reported is there, unless two newer ones are.
func (j *storeJob) check() {
	j.Helper()
	v, err := checkpoints.Open(context.Background(), fakes3.Start(j.T, j.server))
	if err != nil {
		if len(j.safe) > 0 {
			j.fail("%v", err)
		}
		return
	}
	list, err := v.Epochs(context.Background())
	if err != nil {
		j.fail("%v", err)
	}
	var there []storage.Epoch
	for _, info := range list {
		if !info.Committed {
			continue
		}
		if info.Err != nil {
			j.fail("epoch %d: %v", info.Epoch, info.Err)
		}
		found, err := v.Verify(context.Background(), info.Epoch)
		if err != nil || len(found) > 0 {
			j.fail("epoch %d is committed and not whole: %v %+v", info.Epoch, err, found)
		}
		there = append(there, info.Epoch)
	}
	for e := range j.safe {
		newer := 0
		for _, x := range there {
			if x > e {
				newer++
			}
		}
		if newer < 2 && !slices.Contains(there, e) {
			j.fail("epoch %d was committed and is lost; there are %v", e, there)
		}
	}
}

// restore reads the newest epoch as a restart does.
func (j *storeJob) restore() error {
	for _, s := range j.stores {
		list, _, err := s.Candidates(context.Background())
		if err != nil || len(list) == 0 {
			return err
		}
		sh, err := s.Fetch(context.Background(), list[0].Epoch)
		if err != nil {
			return err
		}
		for _, sec := range sh.Sections() {
			p := make([]byte, sec.Size)
			if err = sh.ReadAt(context.Background(), sec.Name, p, 0); err != nil {
				break
			}
		}
		if err = errors.Join(err, sh.Close()); err != nil {
			return err
		}
		if list[0].Epoch < slices.Max(append(slices.Collect(maps.Keys(j.safe)), 0)) {
			return fmt.Errorf("restores epoch %d, and a newer one was committed", list[0].Epoch)
		}
	}
	return nil
}

// runsWithFaults runs a job of several runs under random faults. It returns how many there were.
func (j *storeJob) runsWithFaults(strip bool) int {
	choose, wait := fakes3.Random(j.rnd.Uint64(), 0.02+0.2*j.rnd.Float64())
	var store http.Handler = j.server
	if strip {
		choose = func(_ int, r *http.Request) fakes3.Fault {
			if r.Header.Get("If-Match")+r.Header.Get("If-None-Match") == "" {
				return ""
			}
			return fakes3.Twice
		}
		store = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/probe.") {
				r.Header.Del("If-Match")
				r.Header.Del("If-None-Match")
			}
			j.server.ServeHTTP(w, r)
		})
	}
	proxy := &fakes3.Proxy{Store: store, Choose: choose, Wait: wait}
	j.via = proxy
	for range 2 + j.rnd.IntN(4) {
		if j.open(0, false) != nil {
			continue
		}
		for range 1 + j.rnd.IntN(4) {
			if j.rnd.IntN(4) == 0 {
				j.proxy.KillAt(j.proxy.Requests.Load()+int64(1+j.rnd.IntN(60)), j.rnd.IntN(2) == 0)
			}
			_ = j.epoch()
			j.check()
			if j.proxy.Dead.Load() {
				break
			}
		}
		if j.rnd.IntN(2) == 0 {
			j.kill()
		} else {
			j.close()
		}
		if j.rnd.IntN(3) == 0 {
			proxy.Settle()
		}
		j.check()
	}
	proxy.Settle()
	j.check()
	j.via = j.server
	if err := j.open(0, false); err != nil {
		j.fail("the store is well again: %v", err)
	}
	if err := j.restore(); err != nil {
		j.fail("restore: %v", err)
	}
	if err := j.epoch(); err != nil {
		j.fail("the store is well again: %v", err)
	}
	j.close()
	j.check()
	n := 0
	for _, c := range proxy.Counts() {
		n += c
	}
	return n
}

// TestStoreFaults plays random faults of an object store to jobs that take checkpoints, die and start again. No epoch
// that was reported as committed is lost, and none is there by half.
func TestStoreFaults(t *testing.T) {
	jobtest.QuickStore(t)
	if testing.Short() {
		*storeFaults = min(*storeFaults, 20)
	}
	faults := 0
	for seed := *storeSeed; faults < *storeFaults && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { faults += newStoreJob(t, seed).runsWithFaults(false) })
	}
	t.Logf("%d faults", faults)
}

// TestStoreFaultsAreFound takes the conditions off all requests, as a store that ignores them would: then the faults do
// harm, and the checks of TestStoreFaults must see it. Each request that had a condition is done once more later, which
// is what conditions are for: nine jobs of ten find it.
func TestStoreFaultsAreFound(t *testing.T) {
	jobtest.QuickStore(t)
	const jobs = 30
	for seed := range uint64(jobs) {
		j := newStoreJob(t, seed)
		j.bear = true
		done := make(chan struct{})
		go func() {
			defer close(done)
			j.runsWithFaults(true)
		}()
		if <-done; j.broken != "" {
			t.Logf("job %d: %s", seed, j.broken)
			return
		}
	}
	t.Errorf("%d jobs without conditions, and nothing was found", jobs)
}

// TestKilledBetweenRequests kills a job before and after each request of what it does with an epoch: the start, puts,
// the commit, the removal of an older epoch, the end. A next run finds all epochs that were committed, whole, and takes
// the next one.
func TestKilledBetweenRequests(t *testing.T) {
	jobtest.QuickStore(t)
	step := int64(13)
	switch {
	case *storeKills:
		step = 1
	case testing.Short():
		step = 389
	}
	for _, done := range []bool{false, true} {
		for at := int64(1) + int64(*storeSeed)%step; ; at += step {
			j := newStoreJob(t, 5)
			if err := errors.Join(j.open(0, false), j.epoch(), j.epoch(), j.epoch()); err != nil {
				t.Fatal(err)
			}
			j.kill()
			if j.open(at, done) == nil {
				_, _ = j.epoch(), j.epoch()
			}
			over := j.proxy.Requests.Load() < at
			j.close()
			j.check()
			if err := j.open(0, false); err != nil {
				j.fail("killed at request %d: %v", at, err)
			}
			if err := errors.Join(j.restore(), j.epoch()); err != nil {
				j.fail("killed at request %d: %v", at, err)
			}
			j.close()
			j.check()
			if n := j.server.Uploads(); n > 0 {
				j.fail("killed at request %d: %d uploads are left after the next run", at, n)
			}
			if over {
				t.Logf("%d requests", at)
				break
			}
		}
	}
}

// TestStoreRequests bounds what an epoch asks of the store.
func TestStoreRequests(t *testing.T) {
	server := &fakes3.Server{}
	j := newStoreJob(t, 1)
	j.server, j.via, j.free = server, server, true
	if err := errors.Join(j.open(0, false), j.epoch(), j.epoch(), j.epoch()); err != nil {
		t.Fatal(err)
	}
	server.Counts()
	e := j.next
	infos := make([]storage.ShardInfo, storeRanks)
	for r, s := range j.stores {
		var err error
		if infos[r], err = s.Put(t.Context(), e, storage.LevelGlobal, j.sections(r, e)); err != nil {
			t.Fatal(err)
		}
	}
	put := server.Counts()
	if err := j.stores[0].Commit(t.Context(), e, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	commit := server.Counts()
	t.Log(put, commit)
	if n := put["PutObject"]; n != storeRanks {
		t.Errorf("put: %v; want one put for each rank", put)
	}
	if n := commit["PutObject"]; n != 2 || commit["ListObjectsV2"] != 1 {
		t.Errorf("commit: %v; want two puts and a list", commit)
	}
	if put["HeadObject"] > 3*storeRanks || commit["HeadObject"] > 4 {
		t.Errorf("put %v, commit %v: many looks", put, commit)
	}
	j.close()
}
