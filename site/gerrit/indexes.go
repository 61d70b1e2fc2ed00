package gerrit

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// UnreadyIndexes returns Gerrit's indexes that are not complete, such as changes_0084. Gerrit does not start then; init ends without an error.
func (d *Directory) UnreadyIndexes(ctx context.Context) (unready []string, err error) {
	v, err := readConfig(ctx, d.file("index/gerrit_index.config"))
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		index, is := strings.CutPrefix(name, "index.")
		if index, ready := strings.CutSuffix(index, ".ready"); is && ready && v.last(name) != "true" {
			unready = append(unready, index)
		}
	}
	return unready, nil
}
