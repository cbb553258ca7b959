package vfs

import "testing"

func TestKind(t *testing.T) {
	for magic, want := range map[int64]Kind{
		0xef53:                     {Name: "ext4"},
		0x01021994:                 {Name: "tmpfs", Memory: true},
		0x0bd00bd0:                 {Name: "lustre", Remote: true},
		int64(-0x9acbd) << 12:      {Name: "file system 0x65343000", Remote: true},
		0x9123683e - 0x1_0000_0000: {Name: "btrfs"}, // with its sign extended
	} {
		if got := kindOf(magic); got != want {
			t.Errorf("%#x: got %+v, want %+v", magic, got, want)
		}
	}
	if _, err := KindOf(t.TempDir()); err != nil {
		t.Error(err)
	}
	if (OS{}).Remote("/proc/self/no-such") != true {
		t.Error("what cannot be told is taken for local")
	}
}
