package report

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	panelWidth  = 14 * vg.Centimeter
	panelHeight = 10 * vg.Centimeter
)

// PlotThroughput draws a panel for each report about workers, side by side:
// operations per second against workers, a line per contestant.
func PlotThroughput(path string, reports []Report) error {
	var panels []*plot.Plot
	for _, r := range reports {
		p, err := panel(r)
		if err != nil {
			return err
		}
		if p != nil {
			panels = append(panels, p)
		}
	}
	if len(panels) == 0 {
		return errors.New("none of the workloads is about the number of workers: run W1 or W4")
	}
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	canvas, err := draw.NewFormattedCanvas(panelWidth*vg.Length(len(panels)), panelHeight, format)
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 5 * vg.Millimeter}
	for i, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(canvas))[0] {
		panels[i].Draw(c)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

// panel returns the panel of a report, or nil if the report is not about workers.
func panel(r Report) (*plot.Plot, error) {
	lines := make(map[string]plotter.XYs)
	var names []string
	var ticks plot.ConstantTicks
	for _, res := range r.Results {
		rate, ok := res.Metrics[PerSecond]
		if res.Workers == 0 || !ok {
			continue
		}
		x := float64(res.Workers)
		if len(ticks) == 0 || ticks[len(ticks)-1].Value != x {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(res.Workers)})
		}
		if lines[res.Contestant] == nil {
			names = append(names, res.Contestant)
		}
		lines[res.Contestant] = append(lines[res.Contestant], plotter.XY{X: x, Y: rate.Median})
	}
	if len(names) == 0 {
		return nil, nil
	}
	p := plot.New()
	p.Title.Text = r.ID + ": " + r.Title
	p.X.Label.Text, p.Y.Label.Text = "workers", r.Metrics[0].Header
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, name := range names {
		line, points, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return nil, err
		}
		style := styleOf(name)
		line.Color, points.Color = plotutil.Color(style), plotutil.Color(style)
		line.Width, points.Shape = vg.Points(1.5), plotutil.Shape(style)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	return p, nil
}

// styleOf returns a number for a contestant's color and shape, the same in all panels.
func styleOf(name string) int {
	known := []string{"refdb", "floor", "etcd", "advisory", "pglock"}
	word, _, _ := strings.Cut(name, " ")
	return slices.Index(known, word) + 1 // 0 is for any other
}
