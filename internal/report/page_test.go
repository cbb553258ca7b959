package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/browser"
)

var keepPages = os.Getenv("HOLDFAST_REPORT_PAGES") // a directory to keep pages and pictures in, to look at

func pageFile(t *testing.T, name string, r *Report) string {
	t.Helper()
	dir := t.TempDir()
	if keepPages != "" {
		dir = keepPages
	}
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name+".html")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPage opens pages in a browser: the rows and epochs are there, nothing
// fails, and the picture is not empty.
func TestPage(t *testing.T) {
	for _, c := range []struct {
		name                   string
		ranks, perNode, epochs int
		rows                   int
		size                   string
		theme                  string
	}{
		{"one", 1, 1, 3, 1, "1400,1900", "light"},
		{"eight", 8, 2, 6, 8, "1400,2100", "dark"},
		{"thousand", 1000, 8, 12, 125, "1400,2100", "light"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := fullJob(c.ranks, c.perNode, c.epochs)
			r, err := mergeLogs(worldStart.Add(w.now+time.Hour), w.logs, nil)
			if err != nil {
				t.Fatal(err)
			}
			file := pageFile(t, c.name, r)
			picture := strings.TrimSuffix(file, "html") + "png"
			url := "file://" + file + "?theme=" + c.theme
			look := []string{"--dump-dom", "--virtual-time-budget=2000"}
			seen := keepPages != "" || c.ranks <= 8 // else the DOM is enough
			if seen {
				look = append(look, "--screenshot="+picture, "--window-size="+c.size)
			}
			dom := browser.Open(t, url, look...)
			if m := regexp.MustCompile(`id="jserror">[^<]*`).FindString(dom); m != "" {
				t.Errorf("an error of the script: %s", m)
			}
			if !strings.Contains(dom, `data-ready="yes"`) {
				t.Error("the script did not come to its end")
			}
			if want := fmt.Sprintf(`data-rows="%d"`, c.rows); !strings.Contains(dom, want) {
				t.Errorf("rows of the timeline: got %q, want %s", regexp.MustCompile(`data-rows="\d*"`).FindString(dom),
					want)
			}
			if n := strings.Count(dom, `data-rank="`); n != c.ranks {
				t.Errorf("got %d ranks in the table, want %d", n, c.ranks)
			}
			if n := strings.Count(dom, `data-epoch="`); n != len(r.Epochs) || n != c.epochs+3 {
				t.Errorf("got %d epochs in the table, want %d", n, c.epochs+3)
			}
			if seen {
				checkPicture(t, picture)
			}
		})
	}
}

// acts use the page as a person would and leave on the root element what came
// of it.
const acts = `<script>
(function () {
  const root = document.documentElement, rows = document.getElementById("rows"), out = [];
  const box = () => rows.getBoundingClientRect();
  const send = (el, type, x, y, more) => el.dispatchEvent(
  	new (type === "wheel" ? WheelEvent : PointerEvent)(type, Object.assign(
  		{ clientX: x, clientY: y, bubbles: true, cancelable: true, pointerId: 1 }, more)));
  rows.setPointerCapture = function () {};
  const tip = () => {
  	const b = box();
  	send(rows, "pointermove", b.left + 128 + (b.width - 128) / 2, b.top + 12);
  	return document.getElementById("tip").textContent;
  };
  out.push("start:" + tip());
  document.querySelector('tr[data-epoch="2"]').click();
  out.push("epoch:" + tip());
  const mid = box().left + 128 + (box().width - 128) * 0.6;
  for (let i = 0; i < 20; i++) send(rows, "wheel", mid, box().top + 5, { deltaY: -200, ctrlKey: true });
  out.push("deep:" + tip());
  send(rows, "pointerdown", mid, box().top + 5);
  send(rows, "pointermove", mid - 300, box().top + 5);
  send(rows, "pointerup", mid - 300, box().top + 5);
  for (const key of ["ArrowLeft", "ArrowRight", "+", "-", "n", "p", "Home"])
  	rows.dispatchEvent(new KeyboardEvent("keydown", { key: key, bubbles: true }));
  for (const id of ["zin", "zout", "next", "prev", "less", "more", "group", "theme", "fit"])
  	document.getElementById(id).click();
  out.push("rows:" + root.dataset.rows);
  out.push("again:" + tip());
  root.dataset.acts = out.join("|");
})();
</script></body>`

// TestPageActs uses the page: pointing shows what a rank does, a row of the table
// and the wheel zoom, and every button works.
func TestPageActs(t *testing.T) {
	w := fullJob(8, 2, 4)
	r, err := mergeLogs(worldStart.Add(w.now+time.Hour), w.logs, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := pageFile(t, "acts", r)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte("</body>"), []byte(acts), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := browser.Open(t, "file://"+file, "--dump-dom", "--window-size=1400,1000", "--virtual-time-budget=2000")
	if m := regexp.MustCompile(`id="jserror">[^<]*`).FindString(dom); m != "" {
		t.Errorf("an error of the script: %s", m)
	}
	got := regexp.MustCompile(`data-acts="([^"]*)"`).FindStringSubmatch(dom)
	if got == nil {
		t.Fatal("the acts did not come to their end")
	}
	for _, want := range []string{
		`start:rank 0[^|]*not running`, `epoch:rank 0 on node000, start 1[^|]*epoch 2`, `deep:rank 0[^|]*`, `rows:4`,
		`again:node000, 2 ranks`,
	} {
		if !regexp.MustCompile(want).MatchString(got[1]) {
			t.Errorf("got %q, want %s", got[1], want)
		}
	}
}

// greens leaves on the root element what share of the first rank's row, and of the
// overview, has the colour of computing.
const greens = `<script>
(function () {
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--computing").trim();
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1);
  const want = probe.getImageData(0, 0, 1, 1).data;
  const share = (id, x, y, w, h) => {
    const d = document.getElementById(id).getContext("2d").getImageData(x, y, w, h).data;
    let n = 0;
    for (let i = 0; i < d.length; i += 4)
    	n += Math.abs(d[i] - want[0]) + Math.abs(d[i + 1] - want[1]) +
    		Math.abs(d[i + 2] - want[2]) < 24;
    return Math.round(100 * n / (w * h));
  };
  document.documentElement.dataset.greens = share("rows", 400, 6, 600, 12) + " " + share("mini", 200, 6, 800, 26);
})();
</script></body>`

// TestPageShares: thousands of checkpoints that take a hundredth of the time do not
// hide the program in a view of all of it.
func TestPageShares(t *testing.T) {
	w := newWorld(1, 1)
	w.start(0)
	for range 1600 {
		w.compute(20 * time.Second)
		w.checkpoint("the interval", 0, false, true)
	}
	w.end()
	r, err := mergeLogs(worldStart.Add(w.now+time.Hour), w.logs, nil)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 100 * r.Totals.Stopped / r.Totals.Wall
	file := pageFile(t, "shares", r)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte("</body>"), []byte(greens), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := browser.Open(t, "file://"+file, "--dump-dom", "--window-size=1400,1000", "--virtual-time-budget=2000")
	got := regexp.MustCompile(`data-greens="(\d+) (\d+)"`).FindStringSubmatch(dom)
	if got == nil {
		t.Fatal("the script did not come to its end")
	}
	for i, where := range []string{"the row", "the overview"} {
		// Marks of requests and commits lie over a part of the row.
		if green, err := strconv.Atoi(got[i+1]); err != nil || green < 50 {
			t.Errorf("%d %% of %s show computing, with %.1f %% of the time stopped", green, where, stopped)
		}
	}
	if stopped > 10 || stopped == 0 {
		t.Errorf("the job stops %.1f %% of the time, the test wants little", stopped)
	}
}
