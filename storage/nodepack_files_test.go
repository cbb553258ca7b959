package storage

import (
	"fmt"
	"strings"
	"testing"
)

func TestNodePackFiles(t *testing.T) {
	const room = 3 * 4096
	n := NodePack{Ranks: []int{2, 5, 7, 9}, Sizes: [][]byte{partSize(800, room), partSize(400, room),
		partSize(400, room), partSize(1, room)}}
	files, err := n.files(800)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range files {
		got = append(got, fmt.Sprint(k.ranks, k.base, k.end))
	}
	if s := strings.Join(got, " "); s != "[2] [0] 12288 [5 7] [0 12288] 24576 [9] [0] 12288" {
		t.Errorf("got %s", s)
	}
	for _, bad := range []NodePack{
		{}, {Ranks: []int{1, 0}, Sizes: n.Sizes[:2]}, {Ranks: []int{0}},
		{Ranks: []int{0}, Sizes: [][]byte{partSize(1, 100)}},
		{Ranks: []int{0}, Sizes: [][]byte{partSize(1, room)[:15]}},
	} {
		if _, err := bad.files(800); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestDivideIntoPacks(t *testing.T) {
	var got []string
	for _, run := range packRuns([]int64{50, 60, 10, 200, 5}, 100) {
		got = append(got, fmt.Sprint(run.from, ":", run.to-run.from))
	}
	if s := strings.Join(got, " "); s != "0:1 1:2 3:1 4:1" {
		t.Errorf("got packs %s", s)
	}
}
