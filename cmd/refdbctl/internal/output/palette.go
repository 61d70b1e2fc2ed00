package output

// A Palette colours text for a terminal, or leaves it as it is.
type Palette struct {
	On bool
}

func (p Palette) Bold(s string) string   { return p.paint("1", s) }
func (p Palette) Red(s string) string    { return p.paint("31", s) }
func (p Palette) Green(s string) string  { return p.paint("32", s) }
func (p Palette) Yellow(s string) string { return p.paint("33", s) }

func (p Palette) paint(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
