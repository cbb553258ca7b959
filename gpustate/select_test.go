package gpustate

import (
	"errors"
	"strings"
	"testing"
)

var machine = []Info{
	{Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu", PCI: "0000:18:00.0",
		UUID: "12345678-9abc-def0-1234-56789abcdef0"},
	{Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu", Index: 1,
		PCI: "0000:2a:00.0", UUID: "22345678-9abc-def0-1234-56789abcdef0"},
	{Kind: "opencl", Platform: "NVIDIA CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu",
		PCI: "0000:18:00.0"},
	{Kind: "opencl", Platform: "Portable Computing Language", Vendor: "AuthenticAMD", Name: "pthread-EPYC", Type: "cpu",
		Index: 1},
	{Kind: "opencl", Platform: "rusticl", Vendor: "Mesa", Name: "llvmpipe", Type: "cpu", Index: 2},
	{Kind: "fake", Platform: "Fake", Name: "plain Go", Type: "accelerator"},
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		text string
		rank int
		want int
	}{
		{"", 0, 0}, {"", 1, 1}, {"", 2, 0}, {"", 7, 1},
		{"cuda:1", 0, 1}, {"cuda:1", 1, 0}, {"cuda:2", 0, -1},
		{"opencl", 0, 2}, {"opencl", 1, 2}, // equals only: not the CPU for rank 1
		{"pocl", 0, 3}, {"PoCL", 5, 3}, {"rusticl", 0, 4}, {"cpu", 0, 3}, {"cpu:1", 0, 4}, {"cpu", 1, 3},
		{"opencl:0", 3, 2},
		{"fake", 0, 5}, {"plain Go", 0, -1}, // never by accident
		{"gpu", 1, 1}, {"nvidia", 0, 0}, {"llvmpipe", 0, 4},
		{"uuid=GPU-22345678-9abc-def0-1234-56789abcdef0", 0, 1}, {"pci=0000:2A:00.0", 0, 1},
		{"nothing", 0, -1},
	} {
		s, err := ParseSelect(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		s.Rank = c.rank
		if got := s.pick(machine); got != c.want {
			t.Errorf("%q for rank %d picks %d, want %d", c.text, c.rank, got, c.want)
		}
	}
	for text, want := range map[string]int{"": 2, "nvidia": 2, "gpu": 2, "pocl": 3, "cuda": -1, "#0": -1, "#2": 2} {
		s, err := ParseSelect(text)
		s.OpenCL = true
		if got := s.pick(machine); got != want || err != nil {
			t.Errorf("%q for OpenCL C alone picks %d, %v, want %d", text, got, err, want)
		}
	}
	if n := (Select{}).pick(machine[3:5]); n != 0 {
		t.Errorf("without a GPU the choice is %d, want the first CPU", n)
	}
}

func TestParseSelect(t *testing.T) {
	for _, bad := range []string{"cuda:x", "pocl:-1", "cuda:"} {
		if _, err := ParseSelect(bad); err == nil {
			t.Errorf("%q parses", bad)
		}
	}
	t.Setenv(DeviceEnv, "cuda:x")
	if _, err := Open(SelectFromEnv()); err == nil || !strings.Contains(err.Error(), DeviceEnv) {
		t.Errorf("got %v, want an error that names the variable", err)
	}
	t.Setenv(DeviceEnv, "fake:1")
	d := must(Open(SelectFromEnv()))(t)
	if i := d.Info(); i.Kind != "fake" || i.Index != 1 {
		t.Errorf("opened %s, want the second fake device", i)
	}
	ok(t, d.Close())
}

func TestNoDevice(t *testing.T) {
	_, err := Open(Select{Platform: "Voodoo"})
	var missing *NoDeviceError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v, want a NoDeviceError", err)
	}
	infos, _ := Devices()
	for _, i := range infos {
		if !strings.Contains(err.Error(), i.Name) {
			t.Errorf("%q is not listed in:\n%v", i.Name, err)
		}
	}
}
