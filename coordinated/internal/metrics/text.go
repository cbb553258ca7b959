package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metric has a value for each set of labels, for this rank. It has none until one is set.
type metric struct {
	set    *Set
	name   string
	kind   string // of Prometheus
	help   string
	labels []string          // beside those of the rank
	values map[string]*value // guarded by set.mu; by all labels as the text has them
}

type value struct {
	sum     float64  // or the value
	buckets []uint64 // of a histogram: how many were at most the bound; the last is of all
}

// seconds from a millisecond to a quarter of an hour.
var bounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 150, 400, 900}

// metric adds one. Without labels it is 0 from the start.
func (s *Set) metric(kind, name, help string, labels ...string) *metric {
	m := &metric{set: s, name: "holdfast_" + name, kind: kind, help: help, labels: labels, values: map[string]*value{}}
	if len(labels) == 0 {
		m.add(0)
	}
	s.metrics = append(s.metrics, m)
	return m
}

// at returns the value of these labels. set.mu is held.
func (m *metric) at(labels []string) *value {
	list := slices.Clone(m.set.own)
	for i, l := range labels {
		list = append(list, label(m.labels[i], l))
	}
	slices.Sort(list)
	key := strings.Join(list, ",")
	if m.values[key] == nil {
		m.values[key] = &value{}
		if m.kind == "histogram" {
			m.values[key].buckets = make([]uint64, len(bounds)+1)
		}
	}
	return m.values[key]
}

var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func label(name, value string) string { return name + `="` + escapes.Replace(value) + `"` }

func (m *metric) add(by float64, labels ...string) {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	m.at(labels).sum += by
}

func (m *metric) put(to float64, labels ...string) {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	m.at(labels).sum = to
}

func (m *metric) observe(d time.Duration, labels ...string) {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	v := m.at(labels)
	v.sum += d.Seconds()
	for i, b := range bounds {
		if d.Seconds() <= b {
			v.buckets[i]++
		}
	}
	v.buckets[len(bounds)]++
}

// text returns the metrics in the text format of Prometheus, version 0.0.4.
func (s *Set) text() []byte {
	n := s.opt.Now()
	s.points.put(float64(n.Points))
	s.backlogEpochs.put(float64(n.BacklogEpochs))
	s.backlogBytes.put(float64(n.BacklogBytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	for _, m := range s.metrics {
		b = m.append(b)
	}
	return b
}

func (m *metric) append(b []byte) []byte {
	if len(m.values) == 0 {
		return b
	}
	b = fmt.Appendf(b, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", m.name, m.help, m.kind)
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		v := m.values[key]
		if v.buckets == nil {
			b = fmt.Appendf(b, "%s{%s} %s\n", m.name, key, number(v.sum))
			continue
		}
		for i, n := range v.buckets {
			bound := "+Inf"
			if i < len(bounds) {
				bound = number(bounds[i])
			}
			b = fmt.Appendf(b, "%s_bucket{%s,le=\"%s\"} %d\n", m.name, key, bound, n)
		}
		b = fmt.Appendf(b, "%s_sum{%s} %s\n%[1]s_count{%[2]s} %[4]d\n", m.name, key, number(v.sum),
			v.buckets[len(bounds)])
	}
	return b
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
