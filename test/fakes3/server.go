// Package fakes3 is an object store in memory for tests, and a proxy that loses requests and replies. It speaks as much
// of the S3 protocol as storage uses, and is stricter than some stores: it compares every checksum that it is sent,
// holds to every condition, and refuses parts and requests that S3 refuses. It does not check signatures.
package fakes3

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bucket is the only one.
const Bucket = "bucket"

// Server is an object store. Its fields are set before it is used.
type Server struct {
	// MinPart is the least length of a part but the last; 0: 5 MiB, as S3 has it.
	MinPart int64
	// Page is how many entries a listing has; 0: 1000.
	Page int
	// IgnoreConditions makes puts succeed whatever their conditions; RefuseConditions answers them with 501.
	IgnoreConditions, RefuseConditions bool
	// Deny answers every request with 403.
	Deny bool

	mu      sync.Mutex
	objects map[string]object  // guarded by mu; by key
	uploads map[string]*upload // guarded by mu; by id
	count   map[string]int     // guarded by mu; requests by kind
	next    int                // guarded by mu; of ids
}

type object struct {
	body     []byte
	etag     string
	token    string
	modified time.Time
}

type upload struct {
	key   string
	token string
	parts map[int]object
}

const tokenHeader = "X-Amz-Meta-Holdfast-Put"

// Keys lists the objects.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Uploads returns how many multipart uploads are unfinished.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Counts returns how many requests of each kind were made since the last call.
func (s *Server) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.count
	s.count = map[string]int{}
	return out
}

// Edit changes the bytes of an object behind the back of its users; nil removes it.
func (s *Server) Edit(key string, change func(b []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[key]
	if o.body = change(slices.Clone(o.body)); o.body == nil {
		delete(s.objects, key)
		return
	}
	s.objects[key] = o
}

// answer is what a request comes to.
type answer struct {
	status int
	code   string // of an error
	header map[string]string
	body   []byte
	xml    any
}

func refuse(status int, code string) answer { return answer{status: status, code: code} }

type xmlError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength > int64(len(body)) {
		return // cut off
	}
	a := s.do(r, body)
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if a.code != "" {
		a.xml = xmlError{Code: a.code, Message: "said the fake"}
	}
	if a.xml != nil {
		a.body, _ = xml.Marshal(a.xml)
		w.Header().Set("Content-Type", "application/xml")
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body)
	}
}

func (s *Server) do(r *http.Request, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects, s.uploads = map[string]object{}, map[string]*upload{}
	}
	if s.count == nil {
		s.count = map[string]int{}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case s.Deny || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "):
		return refuse(http.StatusForbidden, "AccessDenied")
	case bucket != Bucket:
		return refuse(http.StatusNotFound, "NoSuchBucket")
	case !intact(r, body):
		return refuse(http.StatusBadRequest, "BadDigest")
	}
	kind, do := s.handler(r.Method, key, q)
	if s.count[kind]++; do == nil {
		return refuse(http.StatusNotImplemented, "NotImplemented")
	}
	return do(r, key, body)
}

func (s *Server) handler(method, key string, q map[string][]string) (kind string, do func(*http.Request, string,
	[]byte) answer) {
	has := func(name string) bool { _, ok := q[name]; return ok }
	switch {
	case method == http.MethodGet && key == "" && has("uploads"):
		return "ListMultipartUploads", s.listUploads
	case method == http.MethodGet && key == "":
		return "ListObjectsV2", s.list
	case method == http.MethodGet:
		return "GetObject", s.get
	case method == http.MethodHead && key != "":
		return "HeadObject", s.get
	case method == http.MethodPut && has("partNumber"):
		return "UploadPart", s.part
	case method == http.MethodPut && key != "":
		return "PutObject", s.put
	case method == http.MethodPost && has("uploads"):
		return "CreateMultipartUpload", s.create
	case method == http.MethodPost && has("uploadId"):
		return "CompleteMultipartUpload", s.complete
	case method == http.MethodDelete && has("uploadId"):
		return "AbortMultipartUpload", s.abort
	case method == http.MethodDelete && key != "":
		return "DeleteObject", s.remove
	}
	return method, nil
}

func crc32c(b []byte) string {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func intact(r *http.Request, body []byte) bool {
	want := r.Header.Get("X-Amz-Checksum-Crc32c")
	return want == "" || want == crc32c(body)
}

func etagOf(b []byte) string {
	sum := md5.Sum(b)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// holds checks the conditions of a put.
func (s *Server) holds(r *http.Request, key string) (answer, bool) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	have, there := s.objects[key]
	switch {
	case s.RefuseConditions && match+none != "":
		return refuse(http.StatusNotImplemented, "NotImplemented"), false
	case s.IgnoreConditions:
	case match != "" && !there:
		return refuse(http.StatusNotFound, "NoSuchKey"), false
	case match != "" && match != have.etag, none != "" && there:
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed"), false
	}
	return answer{}, true
}

func (s *Server) put(r *http.Request, key string, body []byte) answer {
	if a, ok := s.holds(r, key); !ok {
		return a
	}
	o := object{body: body, etag: etagOf(body), token: r.Header.Get(tokenHeader), modified: time.Now()}
	s.objects[key] = o
	return answer{status: http.StatusOK, header: map[string]string{"ETag": o.etag}}
}

func (s *Server) get(r *http.Request, key string, _ []byte) answer {
	o, ok := s.objects[key]
	if !ok {
		return refuse(http.StatusNotFound, "NoSuchKey")
	}
	if m := r.Header.Get("If-Match"); m != "" && m != o.etag {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed")
	}
	h := map[string]string{"ETag": o.etag, "Last-Modified": o.modified.UTC().Format(http.TimeFormat),
		tokenHeader: o.token}
	if r.Method == http.MethodHead {
		h["Content-Length"] = strconv.Itoa(len(o.body))
		return answer{status: http.StatusOK, header: h}
	}
	var from, to int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n != 2 {
		return answer{status: http.StatusOK, header: h, body: o.body}
	}
	if from >= len(o.body) || to < from {
		return refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
	}
	to = min(to, len(o.body)-1)
	h["Content-Range"] = fmt.Sprintf("bytes %d-%d/%d", from, to, len(o.body))
	return answer{status: http.StatusPartialContent, header: h, body: o.body[from : to+1]}
}

func (s *Server) remove(r *http.Request, key string, _ []byte) answer {
	have, there := s.objects[key]
	if m := r.Header.Get("If-Match"); m != "" && !s.IgnoreConditions && there && m != have.etag {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed")
	}
	delete(s.objects, key)
	return answer{status: http.StatusNoContent}
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listed
	CommonPrefixes        []listedPrefix
}

type listed struct {
	Key, ETag    string
	Size         int
	LastModified string
}

type listedPrefix struct{ Prefix string }

func (s *Server) list(r *http.Request, _ string, _ []byte) answer {
	q := r.URL.Query()
	prefix, after := q.Get("prefix"), q.Get("continuation-token")
	most := s.Page
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		most = n
	}
	if most == 0 {
		most = 1000
	}
	var out listing
	n, last := 0, ""
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(k, prefix) {
			continue
		}
		entry := k
		if i := strings.Index(k[len(prefix):], "/"); q.Get("delimiter") == "/" && i >= 0 {
			entry = k[:len(prefix)+i+1]
		}
		if entry == last || entry <= after {
			continue
		}
		if n == most {
			out.IsTruncated, out.NextContinuationToken = true, last
			break
		}
		n, last = n+1, entry
		if entry != k {
			out.CommonPrefixes = append(out.CommonPrefixes, listedPrefix{entry})
			continue
		}
		o := s.objects[k]
		out.Contents = append(out.Contents, listed{k, o.etag, len(o.body), o.modified.UTC().Format(time.RFC3339)})
	}
	return answer{status: http.StatusOK, xml: out}
}
