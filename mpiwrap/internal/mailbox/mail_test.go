package mailbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// boxOf makes a box of messages that are written as source.tag.
func boxOf(list ...string) *Box {
	b := &Box{}
	for _, text := range list {
		m := &Message{Data: []byte(text)}
		_, _ = fmt.Sscanf(text, "%d.%d", &m.Source, &m.Tag)
		b.Add(m)
	}
	return b
}

func textOf(b *Box) string {
	var all []string
	for _, m := range b.All() {
		all = append(all, string(m.Data))
	}
	return strings.Join(all, " ")
}

// TestTakeIsInOrder: a receive gets the first message that fits.
func TestTakeIsInOrder(t *testing.T) {
	for _, c := range []struct {
		source, tag int
		want, left  string
	}{
		{1, 5, "1.5", "0.5 1.6 0.6"},
		{driver.AnySource, 6, "1.6", "0.5 1.5 0.6"},
		{0, driver.AnyTag, "0.5", "1.5 1.6 0.6"},
		{2, driver.AnyTag, "", "0.5 1.5 1.6 0.6"},
	} {
		b := boxOf("0.5", "1.5", "1.6", "0.6")
		seen, m := b.Peek(c.source, c.tag), b.Take(c.source, c.tag)
		got := ""
		if m != nil {
			got = string(m.Data)
		}
		if seen != m || got != c.want || textOf(b) != c.left || b.Len() != len(b.All()) {
			t.Errorf("%d.%d: got %q, left %q; want %q, %q", c.source, c.tag, got, textOf(b), c.want, c.left)
		}
	}
}

// TestMailFindsItsReceives saves a box with messages that receives had matched, and reads it again: each receive
// that is posted again in the same order gets its own message, and then the others come.
func TestMailFindsItsReceives(t *testing.T) {
	b := boxOf("0.5", "1.5")
	var r Mail
	held := func(order uint64, source, tag int, text string) Held {
		m := boxOf(text).All()[0]
		r.Receives = append(r.Receives, endpoint.PendingReceive{Comm: "world", Source: source, Tag: tag, Came: true})
		rec := r.Record("world", m)
		rec.Receive = len(r.Receives)
		return Held{Order: order, Box: b, Source: source, Tag: tag, Record: rec}
	}
	list := []Held{held(1, driver.AnySource, 5, "3.5"), held(2, 1, driver.AnyTag, "1.5"),
		held(3, driver.AnySource, driver.AnyTag, "2.9")}
	r.AddBox("world", b, list)
	r.AddBox("other", boxOf("7.7"), list)
	r.Receives = append(r.Receives, endpoint.PendingReceive{Comm: "world", Source: 4, Tag: 4})
	written, err := endpoint.EncodeRecord(&r, r.Messages)
	if err != nil {
		t.Fatal(err)
	}
	r = Mail{}
	rest, err := endpoint.TakeDescription(written, &r)
	if err != nil {
		t.Fatal(err)
	}
	if err := endpoint.TakeMessages(rest, r.Messages); err != nil || r.Fits(8) != nil || r.Fits(7) == nil {
		t.Fatal(err, r.Fits(8), r.Fits(7))
	}

	u := NewUnposted(&r)
	again := boxOf("6.5")
	r.Deliver("world", again)
	if got := textOf(again); got != "2.9 3.5 0.5 1.5 1.5 6.5" || len(r.Boxes) != 1 {
		t.Fatalf("delivered %s, left %d", got, len(r.Boxes))
	}
	for _, k := range list {
		if m := again.Take(k.Source, k.Tag); m == nil || string(m.Data) != string(k.Record.Data) {
			t.Errorf("receive %d gets %+v, want %s", k.Order, m, k.Record.Data)
		}
	}
	if len(u.Receives()) != 1 || !u.Waiting() {
		t.Errorf("%+v are not posted again, want the one of 4", u.Receives())
	}
	var next Mail
	next.AddRest(&r, u)
	if len(next.Boxes) != 1 || next.Boxes[0].Comm != "other" || len(next.Receives) != 1 {
		t.Errorf("the next record has %+v", next)
	}
	u.Posted("world", 4, 4)
	if len(u.Receives()) != 0 || u.Waiting() {
		t.Errorf("%+v are not posted again, want none", u.Receives())
	}
	if got := textOf(again); got != "0.5 1.5 6.5" {
		t.Errorf("left %q", got)
	}
}
