package linearizability

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Read merges the records of the processes of a run, in the order of their calls.
// A killed process may leave half a line at the end of its file, which Read ignores.
// Anywhere else half a line is an error.
func Read(files ...io.Reader) ([]Op, error) {
	var ops []Op
	for i, f := range files {
		of, err := readFile(f)
		if err != nil {
			return nil, fmt.Errorf("history %d: %w", i+1, err)
		}
		ops = append(ops, of...)
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return ops, nil
}

func readFile(f io.Reader) ([]Op, error) {
	type call struct {
		owner string
		id    int
	}
	var ops []Op
	open := make(map[call]int) // those that have not returned, in ops
	in := bufio.NewReader(f)
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return ops, nil
		}
		if err != nil {
			return nil, err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		key := call{l.Owner, l.ID}
		at, called := open[key]
		switch {
		case l.Input != nil && called:
			return nil, fmt.Errorf("line %d: call %d of %s is made twice", number, l.ID, l.Owner)
		case l.Input != nil:
			open[key] = len(ops)
			ops = append(ops, Op{Owner: l.Owner, ID: l.ID, Input: *l.Input, Output: Output{Result: Unknown, Unresolved: true}, Call: l.Time, Return: Never})
		case l.Output != nil && called:
			ops[at].Output, ops[at].Return = *l.Output, l.Time
			delete(open, key)
		default:
			return nil, fmt.Errorf("line %d: a return of call %d of %s, which was not made", number, l.ID, l.Owner)
		}
	}
}
