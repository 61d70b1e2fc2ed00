package refdb

import "testing"

func TestADatabaseNeedsADriver(t *testing.T) {
	for name, d := range map[string]Driver{"nil": nil, "a nil pointer": (*fake)(nil)} {
		t.Run(name, func(t *testing.T) {
			db, err := New(d, Options{})
			wantIs(t, err, ErrInvalid)
			if db != nil {
				t.Error("it was opened")
			}
		})
	}
}
