package provider

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
)

const transcriptions = "/v1/audio/transcriptions"

// filled builds a form as Go's own writer does: name=value, or @name=content for a file.
func filled(t testing.TB, fields ...string) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		name, content, _ := strings.Cut(f, "=")
		var err error
		if file, ok := strings.CutPrefix(name, "@"); ok {
			h := textproto.MIMEHeader{}
			h.Set("Content-Disposition", `form-data; name="`+file+`"; filename="a \"b\".bin"`)
			h.Set("Content-Type", "application/octet-stream")
			part, e := w.CreatePart(h)
			if err = e; err == nil {
				_, err = part.Write([]byte(content))
			}
		} else {
			err = w.WriteField(name, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

func TestParseForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		fields []string
		want   string
	}{
		{transcriptions, []string{"@file=" + strings.Repeat("\r\n--x", 8000), "model=gpt-4o-transcribe", "prompt=abc", "stream=true"},
			"model=gpt-4o-transcribe stream=true cap=104 text=3 media=320"},
		{transcriptions, []string{"model=a", "model=b", "@file=", "language=en"}, "model=b cap=1314 media=10000"},
		{"/v1/images/edits", []string{"model=i", "prompt=a cat", "n=2", "size=1024x1024", "quality=medium", "user=u",
			"@image[]=" + string(picture(t, "png", 512, 512)), "@image[]=" + string(picture(t, "gif", 32, 32))},
			"model=i cap=1056 choices=2 text=5 media=511 user=u"},
		{transcriptions, []string{"language=en"}, "cap=64"},
	} {
		contentType, body := filled(t, c.fields...)
		e := endpoint(t, OpenAI, c.path)
		got, err := e.ParseForm(contentType, body)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
		} else if s := told(&got); s != c.want {
			t.Errorf("%s %.20v:\n got %s\nwant %s", c.path, c.fields, s, c.want)
		}
		if _, err := e.Parse(c.path, body); !errors.Is(err, ErrNotForm) || !e.Multipart() {
			t.Errorf("%s: read as JSON: %v", c.path, err)
		}
	}
	if _, err := endpoint(t, OpenAI, chatPath).ParseForm("multipart/form-data; boundary=x", []byte("--x--")); !errors.Is(err, ErrNotForm) {
		t.Errorf("chat takes a form: %v", err)
	}
}

// TestFormsOfTwoReadings: forms in which servers could find another model than the one that was judged are refused.
func TestFormsOfTwoReadings(t *testing.T) {
	t.Parallel()
	const head = "Content-Disposition: form-data; name=\"model\"\r\n"
	good := "--B\r\n" + head + "\r\ncheap\r\n--B--\r\n"
	for name, body := range map[string]string{
		"empty":                   "",
		"no boundary":             "model=cheap",
		"text before":             "--A\r\n" + head + "\r\ncheap\r\n--A--\r\n" + good,
		"blank line before":       "\r\n" + good,
		"text after":              good + "--B\r\n" + head + "\r\ndear\r\n--B--\r\n",
		"no end":                  "--B\r\n" + head + "\r\ncheap\r\n",
		"half an end":             "--B\r\n" + head + "\r\ncheap\r\n--B-",
		"line feeds":              strings.ReplaceAll(good, "\r\n", "\n"),
		"line feed at a boundary": "--B\r\n" + head + "\r\ncheap\n--B\r\n" + head + "\r\ndear\r\n--B--\r\n",
		"longer boundary":         "--B\r\n" + head + "\r\ncheap\r\n--BB\r\n" + head + "\r\ndear\r\n--B--\r\n",
		"padded boundary":         "--B \r\n" + head + "\r\ncheap\r\n--B--\r\n",
		"no blank line":           "--B\r\n" + head + "--B--\r\n",
		"folded header":           "--B\r\nContent-Disposition: form-data;\r\n name=\"model\"\r\n\r\ncheap\r\n--B--\r\n",
		"two names":               "--B\r\n" + head + strings.Replace(head, "model", "user", 1) + "\r\ncheap\r\n--B--\r\n",
		"extended name":           "--B\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\ncheap\r\n--B--\r\n",
		"no name":                 "--B\r\nContent-Disposition: form-data\r\n\r\ncheap\r\n--B--\r\n",
		"no disposition":          "--B\r\nContent-Type: text/plain\r\n\r\ncheap\r\n--B--\r\n",
		"a field as a file":       "--B\r\nContent-Disposition: form-data; name=\"model\"; filename=\"\"\r\n\r\ncheap\r\n--B--\r\n",
		"encoded":                 "--B\r\n" + head + "Content-Transfer-Encoding: base64\r\n\r\nY2hlYXA=\r\n--B--\r\n",
	} {
		if c, err := endpoint(t, OpenAI, transcriptions).ParseForm("multipart/form-data; boundary=B", []byte(body)); !errors.Is(err, ErrNotForm) {
			t.Errorf("%s: %s, %v", name, told(&c), err)
		}
	}
	for _, contentType := range []string{"", "application/json", "multipart/form-data", "multipart/mixed; boundary=B", "multipart/form-data; boundary=", "multipart/form-data; boundary=C"} {
		if _, err := endpoint(t, OpenAI, transcriptions).ParseForm(contentType, []byte(good)); !errors.Is(err, ErrNotForm) {
			t.Errorf("%q: %v", contentType, err)
		}
	}
	if c, err := endpoint(t, OpenAI, transcriptions).ParseForm("multipart/form-data; boundary=B", []byte(good)); err != nil || c.Model != "cheap" {
		t.Errorf("the plain form: %q, %v", c.Model, err)
	}
}

func TestRewriteForm(t *testing.T) {
	t.Parallel()
	contentType, body := filled(t, "model=old", "@file=\x00\xff\r\n", "model=older")
	e := endpoint(t, OpenAI, transcriptions)
	c, err := e.ParseForm(contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Rewrite(body, &c, Edit{Model: "whisper-9", MaxOutput: 5, IncludeUsage: true, DropStreamOptions: true})
	want := strings.ReplaceAll(strings.ReplaceAll(string(body), "\r\n\r\nolder\r\n", "\r\n\r\nwhisper-9\r\n"), "\r\n\r\nold\r\n", "\r\n\r\nwhisper-9\r\n")
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = e.Rewrite(body, &c, Edit{MaxOutput: 5}); err != nil || &got[0] != &body[0] {
		t.Errorf("changed without a need: %q, %v", got, err)
	}
	if _, err = e.Rewrite(body, &c, Edit{Model: "a\r\nb"}); err == nil {
		t.Error("a line break went into a form")
	}
}

// FuzzParseForm: what is taken as a form is the same form to mime/multipart, with the same model.
func FuzzParseForm(f *testing.F) {
	contentType, body := filled(f, "model=m", "@file=\r\n--x\r\n", "stream=true")
	f.Add(contentType, body)
	f.Add("multipart/form-data; boundary=B", []byte("--B\r\nContent-Disposition: form-data; name=model\r\n\r\nx\r\n--B--\r\n"))
	f.Add("multipart/form-data; boundary=B", []byte("--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\r\n--B--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		e := endpoint(t, OpenAI, transcriptions)
		c, err := e.ParseForm(contentType, body)
		if err != nil {
			return
		}
		model := ""
		_, boundary, _ := strings.Cut(contentType, "boundary=")
		if strings.ContainsAny(boundary, "\"; \t=") || boundary == "" {
			return
		}
		form, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(1 << 20)
		if err != nil {
			return // Go is stricter here and there; what it refuses it does not serve
		}
		defer form.RemoveAll()
		if v := form.Value["model"]; len(v) > 0 {
			model = v[len(v)-1]
		}
		if len(form.Value["model"]) > 0 && c.Model != model {
			t.Fatalf("%q: model %q, mime/multipart reads %q", body, c.Model, model)
		}
	})
}
