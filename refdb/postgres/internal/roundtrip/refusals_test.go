package roundtrip

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestRefusedCredentialsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, err := pgx.ParseConfig("postgres://u:one@127.0.0.1/d")
		if err != nil {
			t.Fatal(err)
		}
		two := one.Copy()
		two.Password = "two"
		refused := errors.New("refused")
		r := refusals{first: firstLoginPause}

		if err := r.admit(one); err != nil {
			t.Error("before any refusal:", err)
		}
		for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
			r.refuse(one, refused)
			r.refuse(one, refused) // a login that was under way at the same time
			time.Sleep(pause*time.Second - time.Nanosecond)
			if err := r.admit(one); !errors.Is(err, refused) {
				t.Errorf("just before %d s: %v", pause, err)
			}
			if err := r.admit(two); err != nil {
				t.Error("another password:", err)
			}
			time.Sleep(time.Nanosecond)
			if err := r.admit(one); err != nil {
				t.Errorf("after %d s: %v", pause, err)
			}
			if err := r.admit(one); !errors.Is(err, refused) {
				t.Errorf("a second attempt after %d s: %v", pause, err)
			}
		}

		r.lift(one)
		if err := r.admit(one); err == nil {
			t.Error("lift ended the pause of its own credentials")
		}
		r.lift(two)
		if err := r.admit(one); err != nil {
			t.Error("another's refusal did not lift it:", err)
		}
		r.again(one)
		if err := r.admit(one); err != nil {
			t.Error("after an attempt without an outcome:", err)
		}
		r.accept(one)
		for range 2 {
			if err := r.admit(one); err != nil {
				t.Error("after a success:", err)
			}
		}
		for n := range 2 * mostRefusals {
			c := one.Copy()
			c.Password = string(rune('a' + n))
			r.refuse(c, refused)
		}
		if len(r.known) != mostRefusals {
			t.Errorf("%d are remembered", len(r.known))
		}
	})
}
