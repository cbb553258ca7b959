package fakes3

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type created struct {
	XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
	UploadId string   // as the protocol writes it
}

func (s *Server) create(r *http.Request, key string, _ []byte) answer {
	s.next++
	id := strconv.Itoa(s.next)
	s.uploads[id] = &upload{key: key, token: r.Header.Get(tokenHeader), parts: map[int]object{}}
	return answer{status: http.StatusOK, xml: created{UploadId: id}}
}

// of finds the upload of a request.
func (s *Server) of(r *http.Request, key string) *upload {
	u := s.uploads[r.URL.Query().Get("uploadId")]
	if u == nil || u.key != key {
		return nil
	}
	return u
}

func (s *Server) part(r *http.Request, key string, body []byte) answer {
	u := s.of(r, key)
	number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	switch {
	case u == nil:
		return refuse(http.StatusNotFound, "NoSuchUpload")
	case err != nil || number < 1 || number > 10_000:
		return refuse(http.StatusBadRequest, "InvalidArgument")
	}
	etag := etagOf(body)
	u.parts[number] = object{body: body, etag: etag}
	return answer{status: http.StatusOK, header: map[string]string{"ETag": etag}}
}

type completing struct {
	Part []struct {
		PartNumber     int
		ETag           string
		ChecksumCRC32C string
	}
}

type completed struct {
	XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	ETag    string
}

func (s *Server) complete(r *http.Request, key string, body []byte) answer {
	u := s.of(r, key)
	if u == nil {
		return refuse(http.StatusNotFound, "NoSuchUpload")
	}
	var in completing
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Part) == 0 {
		return refuse(http.StatusBadRequest, "MalformedXML")
	}
	least := s.MinPart
	if least == 0 {
		least = 5 << 20
	}
	var whole, sums []byte
	for i, p := range in.Part {
		have, ok := u.parts[p.PartNumber]
		switch {
		case !ok || have.etag != p.ETag || p.ChecksumCRC32C != "" && p.ChecksumCRC32C != crc32c(have.body):
			return refuse(http.StatusBadRequest, "InvalidPart")
		case i > 0 && p.PartNumber <= in.Part[i-1].PartNumber:
			return refuse(http.StatusBadRequest, "InvalidPartOrder")
		case i < len(in.Part)-1 && int64(len(have.body)) < least:
			return refuse(http.StatusBadRequest, "EntityTooSmall")
		}
		whole, sums = append(whole, have.body...), append(sums, have.etag...)
	}
	if a, ok := s.holds(r, key); !ok {
		return a
	}
	etag := fmt.Sprintf(`%s-%d"`, strings.TrimSuffix(etagOf(sums), `"`), len(in.Part))
	s.objects[key] = object{body: whole, etag: etag, token: u.token, modified: time.Now()}
	delete(s.uploads, r.URL.Query().Get("uploadId"))
	return answer{status: http.StatusOK, xml: completed{ETag: etag}}
}

func (s *Server) abort(r *http.Request, key string, _ []byte) answer {
	if s.of(r, key) == nil {
		return refuse(http.StatusNotFound, "NoSuchUpload")
	}
	delete(s.uploads, r.URL.Query().Get("uploadId"))
	return answer{status: http.StatusNoContent}
}

type uploading struct {
	XMLName xml.Name `xml:"ListMultipartUploadsResult"`
	Upload  []struct{ Key, UploadId string }
}

func (s *Server) listUploads(r *http.Request, _ string, _ []byte) answer {
	var out uploading
	for _, id := range slices.Sorted(maps.Keys(s.uploads)) {
		if k := s.uploads[id].key; strings.HasPrefix(k, r.URL.Query().Get("prefix")) {
			out.Upload = append(out.Upload, struct{ Key, UploadId string }{k, id})
		}
	}
	return answer{status: http.StatusOK, xml: out}
}
