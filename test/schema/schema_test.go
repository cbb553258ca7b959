package schema

import (
	"strings"
	"testing"
)

// TestPlanted: a field that is missing, unknown or of another type is found, and so is text that is no JSON.
func TestPlanted(t *testing.T) {
	const good = `{"epoch":3,"good":true}`
	if err := Check("verify", good+"\n"+`{"error":"no such directory"}`+"\n"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		`{"epoch":3}`,
		`{"epoch":3,"good":true,"colour":"red"}`,
		`{"epoch":"3","good":true}`,
		`{"epoch":-3,"good":true}`,
		`{"epoch":3,"good":true,"kind":"rotten"}`,
		`{"epoch":3,"good":true,"good_at":null}`,
		`{"epoch":3,"good":true} {}`,
		`no epoch`,
		``,
	} {
		if Check("verify", good+"\n"+bad+"\n") == nil {
			t.Errorf("passes: %s", bad)
		}
	}
	if Check("verify", good) == nil {
		t.Error("a line without an end passes")
	}
	if Check("nothing", good+"\n") == nil {
		t.Error("a verb without a schema passes")
	}
}

// row is a line with a fault that Make finds.
type row struct {
	Epoch uint64 `json:"epoch"` // its number
	Bare  int    `json:"bare"`
}

func TestMakeNeedsComments(t *testing.T) {
	_, err := Make("a line", nil, row{})
	if err == nil || !strings.Contains(err.Error(), "row.Bare has no comment") ||
		strings.Contains(err.Error(), "Epoch") {
		t.Errorf("got %v", err)
	}
}
