package compare

import (
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Excluding returns a ref that holds a value in the database and whose name excludes that of ref: git can't place both. It returns "" if
// there is none.
func Excluding(ctx context.Context, db *refdb.DB, project, ref string) (with string, err error) {
	if above := slices.Collect(driver.RefsAbove(ref)); len(above) > 0 {
		rows, err := db.GetAll(ctx, project, above...)
		if err != nil {
			return "", err
		}
		for _, row := range rows {
			if !row.Value.IsAbsent() {
				return row.Name, nil
			}
		}
	}
	for row, err := range db.Refs(ctx, project, ref+"/") {
		return row.Name, err
	}
	return "", nil
}

// ExcludedText says of a ref that the database holds another one, with, beside which git can't hold it, and what to do.
func ExcludedText(project, with string) string {
	return fmt.Sprintf("the database also holds %[1]s, and git can't hold both: delete one of the two with git push at a site that has it, or "+
		"%[1]s with refdbctl refs delete %[2]s %[1]s --force", with, project)
}
