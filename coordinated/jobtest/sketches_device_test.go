package jobtest_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// Messages of devices have several pieces each, and sometimes find no room.
func init() { mpitest.SmallPieces(1024, 4096, 8) }

// onDevice is the state of a sketch whose arrays lie on a device: field is what Acc is for
// others, and the halos are received into.
type onDevice struct {
	dev         *gpustate.Device
	q           *gpustate.Queue
	field, sums *gpustate.Buffer
	halo        [2]*gpustate.Buffer
}

// fieldLen is the number of elements: three pieces of a message, or one short message.
const fieldLen = 1300

// deviceOf sets a sketch up whose messages are of n elements.
func deviceOf(sel gpustate.Select, n int) func(p *process) error {
	return func(p *process) (err error) {
		p.on = &onDevice{}
		on := p.on
		if on.dev, err = gpustate.Open(sel); err != nil {
			return err
		}
		var errs []error
		buffer := func(name string) *gpustate.Buffer {
			b, err := on.dev.Buffer(name, 8*n)
			errs = append(errs, err)
			return b
		}
		on.q, err = on.dev.Queue("work")
		errs = append(errs, err)
		on.field, on.sums = buffer("field"), buffer("sums")
		for i := range on.halo {
			on.halo[i] = buffer(fmt.Sprint("halo ", i))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		for i := range on.halo {
			p.reqs[i] = mpiwrap.NewDeviceRequest(p.world, on.q.Range(on.halo[i], 0, 8*n))
			errs = append(errs, p.ck.Protect(fmt.Sprint("halo request ", i), p.reqs[i]))
		}
		first := make([]float64, n)
		for i := range first {
			first[i] = float64(p.world.Rank()*n + i)
		}
		return errors.Join(append(errs, p.ck.Protect("device", on.dev), on.put(on.field, first))...)
	}
}

func (on *onDevice) put(b *gpustate.Buffer, v []float64) error {
	out := make([]byte, 0, 8*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
	}
	_, err := on.q.WriteAsync(b, 0, out)
	return err
}

func (on *onDevice) get(b *gpustate.Buffer) ([]float64, error) {
	in := make([]byte, b.Bytes())
	err := on.q.Read(b, 0, in)
	v := make([]float64, len(in)/8)
	for i := range v {
		v[i] = math.Float64frombits(binary.LittleEndian.Uint64(in[8*i:]))
	}
	return v, err
}

func (on *onDevice) whole(b *gpustate.Buffer) *gpustate.Range { return on.q.Range(b, 0, b.Bytes()) }

// step makes the field of the next step of it and a halo; what is enqueued is not waited for.
func (p *process) deviceStep(halo *gpustate.Buffer) error {
	f, err := p.on.get(p.on.field)
	if err != nil {
		return err
	}
	h, err := p.on.get(halo)
	if err != nil {
		return err
	}
	for i := range f {
		f[i] = 0.5*f[i] + 0.25*h[i] + float64(p.Step)
	}
	return p.on.put(p.on.field, f)
}

// devicePending posts receives into device memory an iteration ahead and passes Points while
// they are pending; it sends the field, which it then overwrites, and reduces it now and then.
func (p *process) devicePending(steps int64) error {
	_, _, left, right := p.peers()
	on := p.on
	defer on.dev.Close()
	post := func(i int64) error { return p.reqs[i%2].Irecv(left, int(i%2)) }
	if p.Phase == 0 {
		if err := post(0); err != nil {
			return err
		}
		p.Phase = 1
	}
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		if p.Step+1 < steps {
			if err := post(p.Step + 1); err != nil {
				return err
			}
		}
		out, err := mpiwrap.IsendDevice(p.world, on.whole(on.field), right, int(p.Step%2))
		if err != nil {
			return err
		}
		if _, err := p.reqs[p.Step%2].Wait(); err != nil {
			return err
		}
		if err := p.deviceStep(on.halo[p.Step%2]); err != nil {
			return err
		}
		if _, err := out.Wait(); err != nil {
			return err
		}
		if p.Step%3 == 2 {
			err := mpiwrap.AllreduceDevice[float64](p.world, on.whole(on.sums), on.whole(on.field), mpiwrap.Max)
			if err != nil {
				return err
			}
			if err := p.deviceStep(on.sums); err != nil {
				return err
			}
		}
	}
	return p.deviceEnd()
}

// deviceMixed sends from devices, a message ahead of the receiver, which receives it into host
// or device memory, by a probe, a wildcard or Recv.
func (p *process) deviceMixed(steps int64) error {
	_, me, left, right := p.peers()
	on := p.on
	defer on.dev.Close()
	for ; p.Step < steps; p.Step++ {
		if p.Phase == 0 {
			if err := mpiwrap.SendDevice(p.world, on.whole(on.field), right, int(p.Step)); err != nil {
				return err
			}
			p.Phase = 1
		}
		if err := p.point(); err != nil {
			return err
		}
		source, tag := left, int(p.Step)
		if (int(p.Step)+me)%4 == 3 {
			st, err := p.world.Probe(left, mpiwrap.AnyTag)
			if err != nil || st.Bytes != on.field.Bytes() || st.Tag != tag {
				return errors.Join(err, fmt.Errorf("the probe says %+v, want %d bytes with tag %d", st,
					on.field.Bytes(), tag))
			}
		}
		if (int(p.Step)+me)%2 == 0 {
			if _, err := mpiwrap.RecvDevice(p.world, on.whole(on.sums), source, tag); err != nil {
				return err
			}
		} else {
			v := make([]float64, on.sums.Bytes()/8)
			if _, err := mpiwrap.Recv(p.world, v, source, tag); err != nil {
				return err
			}
			if err := on.put(on.sums, v); err != nil {
				return err
			}
		}
		if err := p.deviceStep(on.sums); err != nil {
			return err
		}
		p.Phase = 0
	}
	return p.deviceEnd()
}

// deviceEnd leaves the field, as a hash, in the state that is compared.
func (p *process) deviceEnd() error {
	b := make([]byte, p.on.field.Bytes())
	err := p.on.q.Read(p.on.field, 0, b)
	sum := fnv.New64a()
	sum.Write(b)
	p.Log = append(p.Log, int64(sum.Sum64()))
	return err
}

// deviceSketches returns the shapes whose arrays lie on devices.
func deviceSketches(kind string, sel gpustate.Select, rng *rand.Rand) []*sketch {
	steps, ranks := 2+int64(rng.IntN(4)), 2+rng.IntN(2)
	n := []int{fieldLen, 40}[rng.IntN(2)]
	return []*sketch{
		{name: kind + "pending", ranks: ranks, setup: deviceOf(sel, fieldLen),
			body: func(p *process) error { return p.devicePending(steps) }},
		{name: kind + "mixed", ranks: ranks, setup: deviceOf(sel, n),
			body: func(p *process) error { return p.deviceMixed(steps) }},
	}
}

var devicePrograms = flag.Int("device-programs", 2, "programs with messages of devices whose moments are tested, "+
	"a device; make soak takes more")

// TestEveryMomentOfDevices is TestEveryMoment for messages of devices, on the fake device, and on
// PoCL and CUDA where they are installed.
func TestEveryMomentOfDevices(t *testing.T) {
	kinds := map[string]gpustate.Select{"fake": {Kind: "fake"},
		"pocl": {Kind: "opencl", Platform: "Portable Computing Language"}, "cuda": {Kind: "cuda"}}
	for _, kind := range []string{"fake", "pocl", "cuda"} {
		sel := kinds[kind]
		if found, _, err := gpustate.Matching(sel); err != nil || len(found) == 0 {
			t.Logf("%s: not tested: %v", kind, err)
			continue
		}
		programs, done := *devicePrograms, 0
		if testing.Short() {
			programs = 1
		}
		for seed := uint64(0); seed < uint64(programs); seed++ {
			for _, s := range deviceSketches(kind, sel, rand.New(rand.NewPCG(seed, 6))) {
				done += s.everyMoment(t, seed)
			}
		}
		t.Logf("%s: %d pairs", kind, done)
	}
}

// everyMoment tests all moments of one program and returns how many.
func (s *sketch) everyMoment(t *testing.T, seed uint64) int {
	opt, err := memOptions()
	if err != nil {
		t.Fatal(err)
	}
	want, calls, _, err := s.start(jobRun{seed: seed, opt: opt})
	if err != nil {
		t.Fatalf("%s, seed %d, uncut: %v", s.name, seed, err)
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 4)
	for at := 1; at <= calls; at++ {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := s.moment(seed, at, want); err != nil {
				t.Errorf("%s on %d ranks, seed %d, a checkpoint at call %d: %v", s.name, s.ranks, seed, at, err)
			}
		})
	}
	wg.Wait()
	return calls
}
