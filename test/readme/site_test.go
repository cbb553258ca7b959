package readme

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/browser"
)

// TestSite makes the site: all of its links lead somewhere, its search finds a word, and pages fit the screen of a
// phone.
func TestSite(t *testing.T) {
	for _, command := range []string{"mkdocs", "mandoc"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skip(err, ": run make setup")
		}
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/bin/", "./cmd/holdfast")
	site := exec.Command("sh", "scripts/site.sh", dir+"/bin", dir)
	for _, cmd := range []*exec.Cmd{build, site} {
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	html := filepath.Join(dir, "html")
	if n := deadLinks(t, html); n < 40 {
		t.Errorf("the site has %d pages", n)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(html)))
	defer server.Close()
	if found := browse(t, server.URL+"/index.html?q=retention"); !strings.Contains(found, "docs/CONCEPTS.html") {
		t.Errorf("a search for retention finds no CONCEPTS:\n%s", found)
	}
	// The page says in its title whether it fits, once all of it is there.
	fits := strings.NewReplacer("</body>", `<script>addEventListener("load", () => {
		const all = document.documentElement
		document.title = all.scrollWidth > all.clientWidth ? "too wide" : "it fits"
	})</script></body>`)
	for _, page := range []string{"docs/SETTINGS.html", "man/hf_point.3.html"} {
		text, err := os.ReadFile(filepath.Join(html, page))
		narrow := filepath.Join(filepath.Dir(page), "narrow.html")
		if err == nil {
			err = os.WriteFile(filepath.Join(html, narrow), []byte(fits.Replace(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(browse(t, server.URL+"/"+narrow, "--window-size=500,900"), "<title>it fits</title>") {
			t.Errorf("%s is wider than the screen of a phone", page)
		}
	}
}

var link = regexp.MustCompile(`(?:href|src)="([^"#?]*)[^"#]*#?([^"]*)"`)

// raw is what a table or heading leaves that is none, as after an empty line between rows or a broken fence.
var raw = regexp.MustCompile(`(?m)<p>\|.*|^##+ .*`)

// deadLinks reports the links of pages that lead to no page or heading, and returns the number of pages.
func deadLinks(t *testing.T, html string) (pages int) {
	err := filepath.WalkDir(html, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" || filepath.Base(file) == "404.html" {
			return err
		}
		pages++
		text, err := os.ReadFile(file)
		if m := raw.Find(text); m != nil {
			t.Errorf("%s shows its source: %s", strings.TrimPrefix(file, html), m)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") { // elsewhere
				continue
			}
			to := filepath.Join(filepath.Dir(file), m[1])
			if m[1] == "" {
				to = file
			}
			target, err := os.ReadFile(to)
			if m[2] != "" && !strings.Contains(string(target), `id="`+m[2]+`"`) {
				err = fs.ErrNotExist
			}
			if err != nil {
				t.Errorf("%s links %s: %v", strings.TrimPrefix(file, html), m[0], err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// browse returns a page as a browser has made it.
func browse(t *testing.T, url string, args ...string) string {
	t.Helper()
	return browser.Open(t, url, append(args, "--dump-dom", "--virtual-time-budget=10000")...)
}
