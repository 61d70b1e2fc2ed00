package output

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// newTable returns a table without borders, which programs such as cut and sort can read, too.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

func displayWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }
