package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

// picture encodes a blank picture; the forms of WebP are written by hand, with nothing after their headers.
func picture(t testing.TB, format string, w, h int) []byte {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "gif":
		err = gif.Encode(&b, img, nil)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "jpeg with a long preamble": // what cameras write before the size
		var plain bytes.Buffer
		err = jpeg.Encode(&plain, img, nil)
		b.Write(plain.Bytes()[:2])
		for range 3 {
			b.Write([]byte{0xff, 0xe1, 0xff, 0xff})
			b.Write(make([]byte, 0xffff-2))
		}
		b.Write(plain.Bytes()[2:])
	case "VP8 ":
		b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a")
		b.Write(binary.LittleEndian.AppendUint16(nil, uint16(w)))
		b.Write(binary.LittleEndian.AppendUint16(nil, uint16(h)))
	case "VP8L":
		b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f")
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(w-1)|uint32(h-1)<<14))
		b.Write(make([]byte, 8))
	case "VP8X":
		b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00")
		b.Write([]byte{byte(w - 1), byte((w - 1) >> 8), 0, byte(h - 1), byte((h - 1) >> 8), 0, 0, 0})
	default:
		t.Fatalf("no format %q", format)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImageSizes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"png", "gif", "jpeg", "jpeg with a long preamble", "VP8 ", "VP8L", "VP8X"} {
		for _, size := range [][2]int{{1, 1}, {385, 12}, {1000, 700}} {
			raw := picture(t, format, size[0], size[1])
			payload := base64.StdEncoding.EncodeToString(raw)
			for _, body := range []string{payload, "data:image/x;base64," + payload, strings.ReplaceAll(payload, "/", `\/`)} {
				m, isText := readFile(kindNone, nil, text{raw: []byte(body), escaped: strings.Contains(body, `\`), n: len(body)}, true)
				if isText || m.kind != kindImage || m.width != int64(size[0]) || m.height != int64(size[1]) {
					t.Errorf("%s %v: %+v, text %v", format, size, m, isText)
				}
			}
		}
	}
	for _, broken := range []string{"\x89PNG\r\n", "GIF89a", "\xff\xd8\xff", "RIFF1234WEBPVP9 00000000000000000000", ""} {
		m, _ := readFile(kindImage, nil, text{raw: []byte(base64.StdEncoding.EncodeToString([]byte(broken)))}, true)
		if got := openai.mediaTokens("m", &m); got != unknownImage {
			t.Errorf("%q: %d tokens", broken, got)
		}
	}
}

// TestImageRules holds each rule against its published example or the arithmetic of its sentence.
func TestImageRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect, model string
		w, h           int64
		low            bool
		want           int64
	}{
		{OpenAI, "gpt-4o", 1024, 1024, false, 85 + 170*4},
		{OpenAI, "gpt-4o-2024-08-06", 2048, 4096, false, 85 + 170*6},
		{OpenAI, "gpt-4.1", 4096, 8192, true, 85},
		{OpenAI, "gpt-4o", 100, 100, false, 85 + 170},
		{OpenAI, "gpt-4o-mini", 512, 512, false, 2833 + 5667},
		{OpenAI, "gpt-5", 1024, 1024, false, 70 + 140*4},
		{OpenAI, "gpt-4.1-mini", 1024, 1024, false, 1024 * 162 / 100},
		{OpenAI, "gpt-5-nano", 1800, 2400, false, 1536 * 246 / 100},
		{OpenAI, "o4-mini", 320, 320, false, 172},
		{OpenAI, "gpt-6.2-sol", 1024, 1024, false, 1024},
		{OpenAI, "gpt-6.2-sol", 5000, 100, false, 85 + 170*4},
		{Anthropic, "claude-sonnet-4-6", 1000, 1000, false, 1334},
		{Anthropic, "claude-3-5-haiku", 3000, 3000, false, 1600},
		{Anthropic, "claude-opus-4-6", 1568, 100, false, 210},
		{Anthropic, "claude-opus-4-7", 2000, 1500, false, 4000},
		{Anthropic, "claude-opus-5-5", 4000, 4000, false, 4800},
		{Gemini, "g", 384, 384, false, 258},
		{Gemini, "g", 385, 10, false, 258},
		{Gemini, "g", 1536, 1537, false, 258 * 6},
		{Mistral, "m", 1000, 1000, false, unknownImage},
		{Gemini, "g", 1 << 31, 1 << 31, false, 258 * 2796203 * 2796203},
	} {
		m := media{kind: kindImage, width: c.w, height: c.h, bytes: 1, low: c.low}
		got := dialect(t, c.dialect).mediaTokens(c.model, &m)
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestMediaInRequests: every way in which the dialects carry files. None of their bytes counts as text.
func TestMediaInRequests(t *testing.T) {
	t.Parallel()
	b64 := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	img := b64(picture(t, "png", 1024, 1024))
	url := "data:image/png;base64," + img
	pdf := b64(append([]byte("%PDF-1.7\n"), make([]byte, 39_991)...)) // 40,000 bytes
	wav := make([]byte, 44+64_000)
	copy(wav, "RIFF\x00\x00\x00\x00WAVEfmt ")
	binary.LittleEndian.PutUint32(wav[28:], 32_000)
	sound := b64(wav)                  // 2 s
	mp3 := b64(make([]byte, 40_002))   // 11 s at the low rate
	film := b64(make([]byte, 249_999)) // 2 s
	const pdfTokens, soundTokens, mp3Tokens = 2001, 96, 352
	chat := func(part string) string {
		return `{"model":"gpt-4o","messages":[{"role":"user","content":[` + part + `]}]}`
	}
	claude := func(part string) string {
		return `{"model":"claude-sonnet-4-6","messages":[{"role":"user","content":[` + part + `]}]}`
	}
	google := func(part string) string { return `{"contents":[{"parts":[` + part + `]}]}` }
	for _, c := range []struct {
		name, dialect, path, body string
		media, text               int64
	}{
		{"chat image", OpenAI, chatPath, chat(`{"type":"image_url","image_url":{"url":"` + url + `"}}`), 765, 0},
		{"chat image, low", OpenAI, chatPath, chat(`{"image_url":{"detail":"low","url":"` + url + `"},"type":"image_url"}`), 85, 0},
		{"model after the messages", OpenAI, chatPath, `{"messages":[{"content":[{"image_url":{"url":"` + url + `"}}]}],"model":"gpt-4o-mini"}`, 2833 + 4*5667, 0},
		{"chat image elsewhere", OpenAI, chatPath, chat(`{"type":"image_url","image_url":{"url":"https://x/y.png"}}`), 1600, 0},
		{"two images and text", OpenAI, chatPath, chat(`{"type":"text","text":"abc"},{"type":"image_url","image_url":{"url":"` + url + `"}},{"type":"image_url","image_url":{"url":"` + url + `"}}`), 1530, 3},
		{"chat sound", OpenAI, chatPath, chat(`{"type":"input_audio","input_audio":{"data":"` + sound + `","format":"wav"}}`), soundTokens, 0},
		{"chat sound, format first", OpenAI, chatPath, chat(`{"type":"input_audio","input_audio":{"format":"mp3","data":"` + mp3 + `"}}`), mp3Tokens, 0},
		{"chat file", OpenAI, chatPath, chat(`{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,` + pdf + `"}}`), pdfTokens, 0},
		{"chat file without a type", OpenAI, chatPath, chat(`{"type":"file","file":{"file_data":"` + pdf + `"}}`), pdfTokens, 0},
		{"chat file elsewhere", OpenAI, chatPath, chat(`{"type":"file","file":{"file_id":"f"}}`), unseenFile, 0},
		{"data URL in a text is text", OpenAI, chatPath, chat(`{"type":"text","text":"` + url + `"}`), 0, int64(len(url))},
		{"unknown part with a payload", OpenAI, chatPath, chat(`{"type":"new","new":{"blob":"` + url + `"}}`), 765, 0},
		{"unknown part, bare base64", OpenAI, chatPath, chat(`{"type":"new","result":"` + mp3 + `"}`), 1600, 0},

		{"responses image", OpenAI, responsesPath, `{"model":"gpt-4o","input":[{"role":"user","content":[{"type":"input_image","image_url":"` + url + `","detail":"high"}]}]}`, 765, 0},
		{"responses image by id", OpenAI, responsesPath, `{"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`, 1600, 0},
		{"responses file", OpenAI, responsesPath, `{"input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,` + pdf + `"}]}]}`, pdfTokens, 0},
		{"responses file elsewhere", OpenAI, responsesPath, `{"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}]}`, unseenFile, 0},
		{"responses text file", OpenAI, responsesPath, `{"input":[{"role":"user","content":[{"type":"input_file","file_data":"data:text/plain;base64,QUJDREVG"}]}]}`, 0, 6},
		{"screenshot", OpenAI, responsesPath, `{"model":"gpt-4o","input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"` + url + `"}}]}`, 765, 0},
		{"citation is no file", OpenAI, responsesPath, `{"input":[{"content":[{"type":"output_text","text":"abc","annotations":[{"type":"url_citation","url":"https://x","title":"t"}]}]}]}`, 0, 3},

		{"claude image", Anthropic, "/v1/messages", claude(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + img + `"}}`), 1399, 0},
		{"claude image, odd order", Anthropic, "/v1/messages", claude(`{"source":{"data":"` + img + `","media_type":"image/png","type":"base64"},"type":"image"}`), 1399, 0},
		{"claude image by URL", Anthropic, "/v1/messages", claude(`{"type":"image","source":{"type":"url","url":"https://x"}}`), 1600, 0},
		{"claude document by URL, odd order", Anthropic, "/v1/messages", claude(`{"source":{"url":"https://x","type":"url"},"type":"document"}`), unseenFile, 0},
		{"claude image by id, odd order", Anthropic, "/v1/messages", claude(`{"source":{"file_id":"f","type":"file"},"type":"image"}`), 1600, 0},
		{"claude document", Anthropic, "/v1/messages", claude(`{"type":"document","title":"abc","source":{"type":"base64","media_type":"application/pdf","data":"` + pdf + `"}}`), pdfTokens, 3},
		{"claude document of parts", Anthropic, "/v1/messages", claude(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"abcd"}]}}`), 0, 4},
		{"image in a tool's result", Anthropic, "/v1/messages", claude(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + img + `"}}]}`), 1399, 0},
		{"redacted thinking", Anthropic, "/v1/messages", claude(`{"type":"redacted_thinking","data":"` + strings.Repeat("A", 400) + `"}`), 0, 300},

		{"gemini image", Gemini, plainGeneratePath, google(`{"inlineData":{"mimeType":"image/png","data":"` + img + `"}}`), 258 * 4, 0},
		{"gemini image, snake", Gemini, plainGeneratePath, google(`{"inline_data":{"data":"` + img + `","mime_type":"image\/png"}}`), 258 * 4, 0},
		{"gemini sound", Gemini, plainGeneratePath, google(`{"inlineData":{"mimeType":"audio/mp3","data":"` + mp3 + `"}}`), mp3Tokens, 0},
		{"gemini film", Gemini, plainGeneratePath, google(`{"inlineData":{"mimeType":"video/mp4","data":"` + film + `"}}`), 2 * 263, 0},
		{"gemini text file", Gemini, plainGeneratePath, google(`{"inlineData":{"mimeType":"text/csv","data":"` + b64(make([]byte, 900)) + `"}}`), 0, 900},
		{"gemini film elsewhere", Gemini, plainGeneratePath, google(`{"fileData":{"mimeType":"video/mp4","fileUri":"https://x"}}`), unseenFile, 0},
		{"gemini image elsewhere", Gemini, plainGeneratePath, google(`{"fileData":{"mimeType":"image/png","fileUri":"gs://x"}}`), 1600, 0},
		{"interactions image", Gemini, "/v1beta/interactions", `{"model":"g","input":[{"type":"image","data":"` + img + `","mime_type":"image/png"},{"type":"text","text":"abc"}]}`, 258 * 4, 3},

		{"mistral image", Mistral, chatPath, chat(`{"type":"image_url","image_url":"` + url + `"}`), 1600, 0},
		{"mistral document", Mistral, chatPath, chat(`{"type":"document_url","document_url":"https://x/a.pdf"}`), unseenFile, 0},
		{"mistral sound", Mistral, chatPath, chat(`{"type":"input_audio","input_audio":"` + mp3 + `"}`), mp3Tokens, 0},
		{"mistral ocr", Mistral, "/v1/ocr", `{"model":"o","document":{"type":"document_url","document_url":"data:application/pdf;base64,` + pdf + `"}}`, pdfTokens, 0},
		{"mistral ocr image", Mistral, "/v1/ocr", `{"model":"o","document":{"type":"image_url","image_url":{"url":"https://x"}}}`, 1600, 0},
	} {
		e := endpoint(t, c.dialect, c.path)
		got, err := e.Parse(c.path, []byte(c.body))
		if err != nil || got.MediaTokens != c.media || got.TextBytes != c.text {
			t.Errorf("%s: media %d, text %d, %v; want %d, %d", c.name, got.MediaTokens, got.TextBytes, err, c.media, c.text)
		}
	}
}

// TestManyFiles: a body of files without end is bounded in what is looked into, not in what is counted.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const n = 5000
	part := `{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,/9j/4AAQ"}}`
	body := fmt.Sprintf(`{"messages":[{"content":[%s]}]}`, strings.Repeat(part+",", n-1)+part)
	c, err := endpoint(t, OpenAI, chatPath).Parse(chatPath, []byte(body))
	if err != nil || c.MediaTokens != n*unknownImage || c.TextBytes != 0 {
		t.Errorf("%s, %v", told(&c), err)
	}
}
