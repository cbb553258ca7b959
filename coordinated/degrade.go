package coordinated

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// useLevels agrees on the levels that checkpoints go to: those that every rank can
// write to. The others are read at a restart as far as they can be. had says that
// the job has been here before: only then may a directory be missing, or not be this
// user's; on a first start that is a mistake, which is refused. Collective.
func (c *Checkpointer) useLevels(priv *mpiwrap.Comm, had bool) error {
	out := c.store.Out()
	letters := ""
	for i, level := range c.levels {
		if err := out[level]; err != nil {
			letters += string(rune('a' + i))
			if storage.Misplaced(err) {
				letters += string(rune('A' + i))
			}
		}
	}
	all, err := exchange(priv, letters)
	if err != nil {
		return err
	}
	any := strings.Join(all, "")
	if any == "" {
		return nil
	}
	var use []string
	var failed []error
	refuse := false
	for i, level := range c.levels {
		if !strings.ContainsRune(any, rune('a'+i)) {
			use = append(use, level)
			continue
		}
		text := ""
		if out[level] != nil {
			text = out[level].Error()
		}
		texts, err := exchange(priv, text)
		if err != nil {
			return err
		}
		failed = append(failed, ranksError("open level "+level, texts, out[level]))
		refuse = refuse || !had && strings.ContainsRune(any, rune('A'+i))
	}
	if !slices.Contains(use, storage.LevelLocal) { // what partners and parity are made from
		use = slices.DeleteFunc(use, func(l string) bool {
			return l == storage.LevelPartner || l == storage.LevelParity
		})
	}
	why := errors.Join(failed...)
	if refuse || len(use) == 0 {
		return fmt.Errorf("coordinated: checkpoint directories: %w", why)
	}
	if c.world.Rank() == 0 {
		c.log.Error("holdfast: checkpoints go to fewer places than asked for", "levels", use, "error", why)
	}
	c.asked, c.levels = c.levels, use
	c.store.Use(use)
	return nil
}

// inUse is the level that stands for one that was asked for: itself, or the next one
// further out that is in use; "" when there is none.
func (c *Checkpointer) inUse(level string) string {
	i := slices.Index(c.asked, level)
	if slices.Contains(c.levels, level) || i < 0 {
		return level
	}
	for _, l := range c.asked[i:] {
		if slices.Contains(c.levels, l) {
			return l
		}
	}
	return ""
}
