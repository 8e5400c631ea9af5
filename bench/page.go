package bench

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageHTML string

// WriteHTML writes the report as one HTML page with tables and plots. The page loads no other
// files, and is readable on light and on dark screens.
func WriteHTML(w io.Writer, report Report) error {
	page := template.Must(template.New("page").Parse(pageHTML))
	var plots []template.HTML
	for _, p := range Plots(report.Results) {
		plots = append(plots, template.HTML(p.SVG)) // names in the SVG are escaped
	}
	return page.Execute(w, struct {
		Report
		Reading  string
		Sections []section
		Plots    []template.HTML
	}{report, reading, sections(report.Results), plots})
}
