package cl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestOclgrindDevices: two devices of Oclgrind are in use at the same time, as in a
// migration from one to the other. Without turns that they share, the process crashes
// or goes round in Oclgrind's maps for ever. The loader lists Oclgrind's devices only
// under an environment of its own, so a child does the work.
func TestOclgrindDevices(t *testing.T) {
	const role = "HOLDFAST_CL_TEST_OCLGRIND"
	if os.Getenv(role) != "" {
		if err := twoDevices(); err != nil {
			t.Fatal(err)
		}
		return
	}
	libs, err := filepath.Glob("/usr/lib/*/oclgrind/liboclgrind-rt-icd.so")
	if err != nil {
		t.Fatal(err)
	}
	const usual = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
	if _, err := os.Stat(usual); err == nil {
		libs = append(libs, usual)
	}
	if len(libs) == 0 {
		t.Skip("Oclgrind is not installed: make setup")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestOclgrindDevices$")
	c.Env = append(os.Environ(), role+"=1", "OCL_ICD_VENDORS="+libs[0])
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) }
	c.WaitDelay = 10 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// twoDevices moves bytes to and from two devices, with two queues of each.
func twoDevices() error {
	infos, err := System.Devices()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(infos, func(i driver.Info) bool { return i.Platform == "Oclgrind" })
	if i < 0 {
		return fmt.Errorf("no device of Oclgrind among %v", infos)
	}
	var devices [2]driver.Device
	var errs [4]error
	var wg sync.WaitGroup
	for k := range devices {
		if devices[k], err = System.Open(infos[i].Index); err != nil {
			return err
		}
	}
	for k := range errs {
		wg.Go(func() { errs[k] = thereAndBack(devices[k%2], byte(k)) })
	}
	wg.Wait()
	return errors.Join(append(errs[:], devices[0].Close(), devices[1].Close())...)
}

// thereAndBack writes, copies and reads, and compares what it gets.
func thereAndBack(d driver.Device, seed byte) error {
	const rounds, n = 20_000, 4096
	q, err := d.CreateQueue(driver.QueueDesc{})
	if err != nil {
		return err
	}
	var mem [2]driver.Handle
	for i := range mem {
		if mem[i], err = d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: n}); err != nil {
			return err
		}
	}
	want, got := make([]byte, n), make([]byte, n)
	for r := range rounds {
		for i := range want {
			want[i] = byte(r+i) ^ seed
		}
		if _, err := put(d, q, mem[0], want); err != nil {
			return err
		}
		e, err := d.Copy(q, mem[1], driver.Bytes(0, n), mem[0], driver.Bytes(0, n), nil)
		if err != nil {
			return err
		}
		if _, err := get(d, q, mem[1], 0, got, e); err != nil {
			return err
		}
		d.ReleaseEvent(e)
		if !bytes.Equal(got, want) {
			return fmt.Errorf("round %d: other bytes than were written", r)
		}
	}
	return errors.Join(d.ReleaseMem(mem[0]), d.ReleaseMem(mem[1]), d.ReleaseQueue(q))
}
