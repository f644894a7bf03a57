# Glue: the template has no streaming page. This one sends its second part when it is released by a POST, so that a
# test can check that the first part has arrived before. It ends after a timeout.
import threading
from collections import defaultdict

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from example.urls import urlpatterns as template

MAX_WAIT_SECONDS = 30
released = defaultdict(threading.Event)


@csrf_exempt
def stream(request, name):
    if request.method == "POST":
        released[name].set()
        return HttpResponse(status=204)

    def parts():
        yield "the first part\n"
        if released[name].wait(MAX_WAIT_SECONDS):
            yield "the second part\n"

    return StreamingHttpResponse(parts(), content_type="text/plain")


urlpatterns = [path("stream/<slug:name>/", stream), *template]
