package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const settingWidth = 110 // columns

// PrintTable prints medians. Of the first metric it also prints the least and the
// most, and the ratio to the baseline.
func PrintTable(out io.Writer, r Report) {
	fmt.Fprintf(out, "\n%s  %s\n", r.ID, r.Title)
	for line := range strings.Lines(text.WrapSoft(r.Setting, settingWidth)) {
		fmt.Fprintln(out, "    "+strings.TrimSpace(line))
	}
	fmt.Fprintln(out)
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SuppressTrailingSpaces()
	t.SetStyle(bareStyle())
	header := table.Row{"case", "contestant"}
	var configs []table.ColumnConfig
	for i, m := range r.Metrics {
		header = append(header, m.Header)
		if i == 0 {
			header = append(header, "min–max", ratioHeader(r))
		}
	}
	for n := 3; n <= len(header); n++ {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	previous := ""
	for _, res := range r.Results {
		if previous != "" && res.Case != previous {
			t.AppendSeparator()
		}
		t.AppendRow(row(r.Metrics, res, res.Case == previous))
		previous = res.Case
	}
	t.Render()
}

func row(metrics []Metric, r Result, sameCase bool) table.Row {
	cells := table.Row{r.Case, r.Contestant}
	if sameCase {
		cells[0] = ""
	}
	for i, m := range metrics {
		s, ok := r.Metrics[m.Name]
		if !ok {
			cells = append(cells, "–")
		} else {
			cells = append(cells, Number(s.Median, m.Decimals))
		}
		if i == 0 {
			cells = append(cells, Number(s.Min, m.Decimals)+"–"+Number(s.Max, m.Decimals), ratioCell(r))
		}
	}
	return cells
}

func ratioHeader(r Report) string {
	if r.Less {
		return "ratio (less is better)"
	}
	return "ratio"
}

func ratioCell(r Result) string {
	if r.Contestant == r.Baseline {
		return "1"
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

// Number writes thousands apart, so that columns can be compared by eye.
func Number(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole := len(s)
	if decimals > 0 {
		whole -= decimals + 1
	}
	for i := whole - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bareStyle separates columns by spaces and cases by an empty line.
func bareStyle() table.Style {
	style := table.StyleDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Box.MiddleHorizontal = " "
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	return style
}
