module github.com/retrysafe/retrysafe/internal/test/browser

go 1.26.0

replace github.com/retrysafe/retrysafe => ../../..

require (
	github.com/chromedp/cdproto v0.157.8
	github.com/chromedp/chromedp v0.21.0
	github.com/retrysafe/retrysafe v0.0.0-00010101000000-000000000000
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/time v0.16.0 // indirect
)
