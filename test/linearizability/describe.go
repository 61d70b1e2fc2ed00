package linearizability

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// String returns the event in one line, with its times in milliseconds.
func (e *event) String() string {
	until := "…"
	if e.ret != Never {
		until = fmt.Sprintf("%.3f", float64(e.ret)/1e6)
	}
	return fmt.Sprintf("[%.3f, %s] %s", float64(e.call)/1e6, until, e.text)
}

// describe returns a call and its answer in one line.
func describe(op Op) string {
	in, out := op.Input, op.Output
	var b strings.Builder
	fmt.Fprintf(&b, "%s #%d: ", short(op.Owner), op.ID)
	switch in.Kind {
	case Update:
		for _, u := range in.Updates {
			fmt.Fprintf(&b, "%s: %s → %s ", u.Ref, show(u.Old), show(stored(u)))
		}
		if in.Token != 0 {
			fmt.Fprintf(&b, "under %d by %s on %s ", in.Token, short(in.Owner), strings.Join(in.Refs, " "))
		}
		if in.Release {
			b.WriteString("releasing ")
		}
		if in.Adopt {
			b.WriteString("adopting ")
		}
		if in.Advisory {
			b.WriteString("advisory ")
		}
	default:
		fmt.Fprintf(&b, "%s %s ", in.Kind, strings.Join(in.Refs, " "))
		if in.Token != 0 {
			fmt.Fprintf(&b, "of %d ", in.Token)
		}
	}
	b.WriteString("⇒ " + outcome(in, out))
	return b.String()
}

// outcome returns an answer in words.
func outcome(in Input, out Output) string {
	all := []string{string(out.Result)}
	if out.Token != 0 {
		all = append(all, fmt.Sprint("token ", out.Token))
	}
	if in.Kind == Get || in.Kind == Acquire && out.Result == Done {
		for _, ref := range in.Refs {
			all = append(all, ref+"="+show(out.Values[ref]))
		}
	}
	for _, m := range out.Mismatches {
		all = append(all, m.Ref+"="+show(m.Have))
	}
	for _, h := range out.Holders {
		all = append(all, h.String())
	}
	for _, h := range out.Reclaimed {
		all = append(all, "reclaimed "+h.String())
	}
	all = append(all, out.Lost...)
	if in.Kind == Release {
		all = append(all, "deleted "+strings.Join(out.Deleted, " "))
	}
	if out.Unresolved {
		all = append(all, "unresolved")
	}
	return strings.Join(all, ", ")
}

func (h Holder) String() string {
	fresh := "fresh"
	if h.stale() {
		fresh = "stale"
	}
	return fmt.Sprintf("%s by %s %d (%s, %s old)", h.Ref, short(h.Owner), h.Token, fresh, h.Age)
}

func (b beaten) String() string {
	result := "beaten"
	if b.Result == driver.BeatLost {
		result = "lost"
	}
	return fmt.Sprintf("%s: beat %d on %s ⇒ %s", short(b.owner), b.Token, b.Ref, result)
}

// short returns an owner without the part that all processes of a machine share.
func short(owner string) string {
	site, process, _ := strings.Cut(owner, "/")
	if parts := strings.Split(process, ":"); len(parts) >= 2 {
		process = strings.Join(parts[len(parts)-2:], ":")
	}
	return site + "/" + process
}

// line returns the line of a picture for an owner's events. Each owner has a line.
func (p *partition) line(owner string) int {
	i := slices.Index(p.owners, owner)
	if i < 0 {
		i = len(p.owners)
		p.owners = append(p.owners, owner)
	}
	return i
}
