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
		l := logins{first: firstLoginPause}

		if err := l.admit(one); err != nil {
			t.Error("before any refusal:", err)
		}
		for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
			epoch := l.begin()
			l.refuse(one, refused, epoch)
			l.refuse(one, refused, epoch) // a concurrent login
			time.Sleep(pause*time.Second - time.Nanosecond)
			if err := l.admit(one); !errors.Is(err, refused) {
				t.Errorf("just before %d s: %v", pause, err)
			}
			if err := l.admit(two); err != nil {
				t.Error("another password:", err)
			}
			time.Sleep(time.Nanosecond)
			if err := l.admit(one); err != nil {
				t.Errorf("after %d s: %v", pause, err)
			}
			if err := l.admit(one); !errors.Is(err, refused) {
				t.Errorf("a second attempt after %d s: %v", pause, err)
			}
		}

		l.again(one)
		if err := l.admit(one); err != nil {
			t.Error("after an attempt without an outcome:", err)
		}
		l.accept(one)
		for range 2 {
			if err := l.admit(one); err != nil {
				t.Error("after a success:", err)
			}
		}
		for n := range 2 * mostLogins {
			c := one.Copy()
			c.Password = string(rune('a' + n))
			l.refuse(c, refused, l.begin())
		}
		if len(l.known) != mostLogins {
			t.Errorf("%d credentials are remembered", len(l.known))
		}
	})
}

// A password changes at the server. Credentials that were refused until then may be tried at once.
func TestTheFirstRefusalOfCredentialsInUseEndsThePausesOfOthers(t *testing.T) {
	t.Parallel()
	inUse, err := pgx.ParseConfig("postgres://u:one@127.0.0.1/d")
	if err != nil {
		t.Fatal(err)
	}
	candidate := inUse.Copy()
	candidate.Password = "two"
	refused := errors.New("refused")
	for name, attempts := range map[string]func(l *logins){
		"the candidate was refused before": func(l *logins) {
			l.refuse(candidate, refused, l.begin())
			l.refuse(inUse, refused, l.begin())
		},
		"the candidate was refused, and its pause went on after an attempt": func(l *logins) {
			l.refuse(candidate, refused, l.begin())
			time.Sleep(firstLoginPause)
			if err := l.admit(candidate); err != nil {
				t.Error(err)
			}
			l.refuse(candidate, refused, l.begin())
			l.refuse(inUse, refused, l.begin())
		},
		"the candidate's login began before, and is refused afterwards": func(l *logins) {
			l.refuse(candidate, refused, l.begin())
			epoch := l.begin()
			l.refuse(inUse, refused, epoch)
			l.refuse(candidate, refused, epoch)
		},
		"the same, and it is the candidate's first": func(l *logins) {
			epoch := l.begin()
			l.refuse(inUse, refused, epoch)
			l.refuse(candidate, refused, epoch)
		},
		"concurrent logins with the credentials in use are refused": func(l *logins) {
			l.refuse(candidate, refused, l.begin())
			epoch := l.begin()
			l.refuse(inUse, refused, epoch)
			l.refuse(inUse, refused, epoch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := logins{first: firstLoginPause}
				l.accept(inUse)
				attempts(&l)
				if err := l.admit(candidate); err != nil {
					t.Error("the candidate pauses:", err)
				}
				if err := l.admit(candidate); err == nil {
					t.Error("the candidate has a second attempt")
				}
				if err := l.admit(inUse); err == nil {
					t.Error("the credentials in use do not pause")
				}
			})
		})
	}
}
